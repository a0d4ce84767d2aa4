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
	// Handover is how long a leader that is about to stop may take to hand the leadership over; zero: as long as store.Config says.
	Handover time.Duration
	// Version is that of the role.
	Version string
	// Quota is how many bytes the database may have on disk; zero: store.DefaultQuota. RoomInterval is store.DefaultRoomInterval if it is zero, PauseShare
	// store.DefaultPauseShare.
	Quota        int64
	RoomInterval time.Duration
	PauseShare   int
	// PulseInterval is store.DefaultPulseInterval if it is zero.
	PulseInterval time.Duration
	// QuorumGrace is door.DefaultQuorumGrace if it is zero.
	QuorumGrace time.Duration
	// StallBound is reconcile.DefaultStallBound if it is zero.
	StallBound time.Duration
	// CompareInterval is reconcile.DefaultCompareInterval if it is zero.
	CompareInterval time.Duration
	Reporter        Reporter
	// Network is how the members reach each other's roles; nil: they do not.
	Network Network
	// AwaitNodes returns as soon as Network has Nodes, or the context is done; nil: nobody waits for that.
	AwaitNodes func(context.Context)
	// Gone reports whether the cluster is known to have a node no more; nil: none is.
	Gone func(node string) bool
	// PeerListen is where the member listens for etcd's peers, host:port; an empty host or port: that of the node, and DefaultPeerPort.
	PeerListen string
	// Before is reconcile.MembersConfig's.
	Before func(step string)
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
	// directory is the role's.
	directory string
	// local is the member as soon as etcd runs; nil: it does not.
	local atomic.Pointer[store.Local]
	// pauses are taken by Run. recovering has room for one request of a recovery.
	pauses     chan *pause
	recovering chan struct{}
	// gone is why there is no member, after there was one; empty: there never was.
	gone event.Value[string]
	// receives is where a snapshot is kept, and how large it may be.
	receives store.Config
}

// joinRetry is how long a member that joins in the place of a removed one waits before it asks again.
const joinRetry = time.Second

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
		forms: make(chan *formation, 1), pauses: make(chan *pause), recovering: make(chan struct{}, 1), directory: config.DataDirectory,
		receives: store.Config{Directory: config.DataDirectory, Quota: config.Quota},
	}
	r.attempts.ended = ctx.Done()
	r.status.Set(nil)
	r.usage.Set(nil)
	r.gone.Set("")
	s.running.Set(r)

	metrics := serveMetrics(config.Log.Named("metrics"), config.RuntimeDirectory, s.gatherer())
	defer metrics.close()

	place := newPlace(config)
	var background errgroup.Group
	background.Go(func() error { return place.run(ctx) })
	defer background.Wait() //nolint:errcheck // it only ends with ctx
	defer cancel()
	for {
		formed, err := r.form(ctx, config, place)
		if formed == nil {
			return err
		}
		err = r.serve(ctx, config, formed)
		if errors.Is(err, errPaused) {
			continue
		}
		if !errors.Is(err, store.ErrRemoved) {
			return err
		}
		r.forms <- r.attempts.renew() // never waits: whoever calls Form waits for this attempt, too
	}
}

// serve runs a member until ctx is done or the member ends. It fails with store.ErrRemoved if the store has removed it, and puts its data aside then.
func (r *running) serve(ctx context.Context, config Config, formed *store.Store) error {
	r.store.Store(formed)
	r.gone.Set("")
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return formed.Run(ctx) })
	group.Go(func() error { return r.door.Run(ctx, formed, formed.Status()) })
	group.Go(func() error {
		return reconcile.New(config.Log.Named("reconcile"), formed, r.attempts.clusterUser()).Run(ctx)
	})
	group.Go(func() error {
		return reconcile.NewMembers(reconcile.MembersConfig{
			Log: config.Log.Named("members"), Store: formed, ClusterUser: r.attempts.clusterUser(), StallBound: config.StallBound,
			Gone: config.Gone, Before: config.Before,
		}).Run(ctx)
	})
	group.Go(func() error {
		return (&reconcile.Comparer{Log: config.Log.Named("members"), Store: formed, Interval: config.CompareInterval, Before: config.Before}).Run(ctx)
	})
	group.Go(func() error { return servePeers(ctx, config, formed, r.attempts.clusterUser()) })
	group.Go(func() error { return r.report(ctx, formed.Status(), config.Reporter) })
	group.Go(func() error { return r.passUsage(ctx, formed.Usage()) })
	var asked *pause
	group.Go(func() error {
		if asked = r.awaitPause(ctx); asked != nil {
			return errPaused
		}
		return nil
	})
	err := group.Wait()
	r.store.Store(nil)
	if asked != nil {
		return r.paused(config, formed, asked)
	}
	r.local.Store(nil)
	if !errors.Is(err, store.ErrRemoved) {
		return errors.Join(err, formed.Close())
	}
	if err := formed.Replace(); err != nil {
		return err
	}
	r.status.Set(nil)
	r.usage.Set(nil)
	r.without(config, "the store has removed the member of this node; it is asked whether the node is to have another one")
	return store.ErrRemoved
}

// without says why there is no member.
func (r *running) without(config Config, reason string) {
	r.gone.Set(reason)
	config.Reporter.Degraded(reason)
}

// form carries out Form calls until one succeeds. It returns nil if ctx is done, and an error if etcd is broken for good.
func (r *running) form(ctx context.Context, config Config, place *place) (*store.Store, error) {
	var damage *store.DamagedError // of the last attempt
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case p := <-r.pauses:
			p.carryOut(config, nil)
		case attempt := <-r.forms:
			formed, err := r.open(ctx, config, store.Config{
				Log:              config.Log.Named("etcd"),
				Directory:        config.DataDirectory,
				RuntimeDirectory: config.RuntimeDirectory,
				Heartbeat:        config.Heartbeat,
				Handover:         config.Handover,
				Version:          config.Version,
				Election:         config.Election,
				Quota:            config.Quota,
				RoomInterval:     config.RoomInterval,
				PauseShare:       config.PauseShare,
				PulseInterval:    config.PulseInterval,
				Place:            place.value(),
				Elsewhere:        place.peers,
				Join:             joiner(config),
				Follows:          follows(config),
				Waiting:          config.Reporter.Degraded,
				Began:            r.local.Store,
				Damage:           damage,
			}, attempt.plan)
			damage = nil
			_ = errors.As(err, &damage)
			if err == nil {
				status, _ := formed.Status().Get()
				r.status.Set(&status)
				attempt.succeed(formed.MemberID())
				return formed, nil
			}
			r.local.Store(nil)
			if ctx.Err() != nil {
				attempt.fail(err)
				return nil, nil
			}
			broken, problem := (*store.BrokenError)(nil), (*store.Problem)(nil)
			if attempt.again && !errors.As(err, &broken) && !errors.As(err, &problem) {
				next, reason := attempt, err.Error()
				if !errors.Is(err, store.ErrWaiting) {
					next = r.attempts.renew() // before this one ends, so that nobody else begins one
					attempt.fail(err)
					reason = "the member of the store does not start, and is started again: " + reason
				}
				r.without(config, reason)
				select {
				case <-ctx.Done():
				case <-time.After(joinRetry):
					r.forms <- next // never waits: nobody else begins one before this one has ended
				}
				continue
			}
			if errors.As(err, &broken) {
				attempt.fail(err)
				return nil, fmt.Errorf("consensus: the store of cluster %s cannot be used: %w", attempt.plan.ClusterID, err)
			}
			switch {
			case errors.Is(err, store.ErrWaiting):
				config.Reporter.Degraded(err.Error())
			case attempt.again && errors.As(err, &problem):
				config.Log.Info("this node has no member of the store any more", "reason", problem.Message)
				r.without(config, problem.Message)
			default:
				config.Log.Error("the store was not formed", "error", err)
			}
			attempt.fail(err) // whoever is answered sees the state of the role that belongs to the answer
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
