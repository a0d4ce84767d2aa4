package service

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/door"
	"github.com/reeveproject/reeve/plugins/consensus/internal/reconcile"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what a Service needs to run.
type Config struct {
	Log hclog.Logger
	// DataDirectory is kept over restarts, RuntimeDirectory is this instance's alone; both are there and private.
	DataDirectory, RuntimeDirectory string
	// Heartbeat and Election are raft's times; zero: store.DefaultHeartbeat and store.DefaultElection.
	Heartbeat, Election time.Duration
	// Quota is how many bytes the database may have on disk; zero: store.DefaultQuota. RoomInterval is store.DefaultRoomInterval if it is zero.
	Quota        int64
	RoomInterval time.Duration
	// PulseInterval is store.DefaultPulseInterval if it is zero.
	PulseInterval time.Duration
	// QuorumGrace is door.DefaultQuorumGrace if it is zero.
	QuorumGrace time.Duration
	Reporter    Reporter
}

// Reporter is told how the role is.
type Reporter interface {
	Ready()
	Degraded(reason string)
}

// Service is the role. It is registered on the plugin connection before it runs; calls that come before Run wait for it.
type Service struct {
	consensusv1.UnimplementedConsensusServiceServer
	running event.Value[*running]
}

// running is what Run shares with the calls.
type running struct {
	door     *door.Door
	forms    chan *formation
	attempts formations
	status   event.Value[*store.Status] // nil: not formed
	usage    event.Value[[]*consensusv1.UserUsage]
	store    atomic.Pointer[store.Store] // nil: not formed
}

// New returns a Service that does not run yet.
func New() *Service { return &Service{} }

// Register puts the service on a gRPC server.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	consensusv1.RegisterConsensusServiceServer(registrar, s)
}

// Run runs the role until ctx is done, and returns nil then. It is to be called once.
func (s *Service) Run(ctx context.Context, config Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &running{
		door:  door.New(door.Config{Log: config.Log.Named("door"), QuorumGrace: config.QuorumGrace}),
		forms: make(chan *formation, 1),
	}
	r.attempts.ended = ctx.Done()
	r.status.Set(nil)
	r.usage.Set(nil)
	s.running.Set(r)

	metrics := serveMetrics(config.Log.Named("metrics"), config.RuntimeDirectory, s.gatherer())
	defer metrics.close()

	formed, err := r.form(ctx, config)
	if formed == nil {
		return err
	}
	defer formed.Close()
	r.store.Store(formed)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return formed.Run(ctx) })
	group.Go(func() error { return r.door.Run(ctx, formed, formed.Status()) })
	group.Go(func() error {
		return reconcile.New(config.Log.Named("reconcile"), formed, r.attempts.clusterUser()).Run(ctx)
	})
	group.Go(func() error { return r.report(ctx, formed.Status(), config.Reporter) })
	group.Go(func() error { return r.passUsage(ctx, formed.Usage()) })
	return group.Wait()
}

// form carries out Form calls until one succeeds. It returns nil if ctx is done, and an error if etcd is broken for good.
func (r *running) form(ctx context.Context, config Config) (*store.Store, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case attempt := <-r.forms:
			formed, err := store.Open(ctx, store.Config{
				Log:              config.Log.Named("etcd"),
				Directory:        config.DataDirectory,
				RuntimeDirectory: config.RuntimeDirectory,
				Heartbeat:        config.Heartbeat,
				Election:         config.Election,
				Quota:            config.Quota,
				RoomInterval:     config.RoomInterval,
				PulseInterval:    config.PulseInterval,
			}, attempt.plan)
			if err == nil {
				status, _ := formed.Status().Get()
				r.status.Set(&status)
				attempt.succeed(formed.MemberID())
				return formed, nil
			}
			attempt.fail(err)
			if ctx.Err() != nil {
				return nil, nil
			}
			if broken := (*store.BrokenError)(nil); errors.As(err, &broken) {
				return nil, fmt.Errorf("consensus: the store of cluster %s cannot be used: %w", attempt.plan.ClusterID, err)
			}
			config.Log.Error("the store was not formed", "error", err)
		}
	}
}

// report passes the store's status on: to the calls of WatchStore, and to the core as the state of the role.
func (r *running) report(ctx context.Context, status *event.Value[store.Status], reporter Reporter) error {
	watcher := status.Watch()
	for said := "nothing yet"; ; {
		current, err := watcher.Next(ctx)
		if err != nil {
			return nil
		}
		r.status.Set(&current)
		problem := current.Problem()
		if problem == said {
			continue
		}
		said = problem
		if problem == "" {
			reporter.Ready()
		} else {
			reporter.Degraded(problem)
		}
	}
}

// passUsage passes on what the users have, to the calls of WatchStore.
func (r *running) passUsage(ctx context.Context, usage *event.Value[[]*consensusv1.UserUsage]) error {
	watcher := usage.Watch()
	for {
		current, err := watcher.Next(ctx)
		if err != nil {
			return nil
		}
		r.usage.Set(current)
	}
}
