package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/curator/internal/archive"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/bootstrap"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/metrics"
	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	"github.com/reeveproject/reeve/plugins/curator/internal/steward"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// stopWithin is how long calls that are under way may take to end. It is longer than one exchange with a store that does not answer.
const stopWithin = 6 * time.Second

// Host is what a curator tells its node: a *role.Host.
type Host interface {
	Ready()
	Degraded(reason string)
	SetEndpoint(name, address string)
	// SetValue publishes a value; empty: it withdraws it.
	SetValue(name, value string)
	// Network is the addresses of the node, the preferred one first.
	Network() *event.Value[[]string]
}

// Config is what a curator needs.
type Config struct {
	// Client sees the keys of ClusterUser, the curator's own ConsensusUser, from the root.
	Client      *clientv3.Client
	ClusterUser string
	// Leases is that of store.Config.
	Leases pb.LeaseClient
	// Snapshots takes snapshots of the store; nil: nobody does.
	Snapshots consensusv1.SnapshotServiceClient
	// Bootstrap is given the store for as long as Run runs.
	Bootstrap *bootstrap.Service
	Host      Host
	// Listener opens the endpoint for the role archive; nil: it is never opened.
	Listener     archive.Listener
	NodeID, Role string
	// DataDirectory is where scheduled snapshots are kept; empty: none are taken.
	DataDirectory string
	Configuration configuration.Configuration
	Log           hclog.Logger
	// Metrics is what is counted, and Health is told what the health of the role is judged by; default: nobody looks at them.
	Metrics *metrics.Metrics
	Health  *Health
	// Now is the clock; default time.Now.
	Now func() time.Time
	// AnswerWithin, HeartbeatTTL, ProbeEvery, StewardTTL and StewardSilence are times that tests shorten; their defaults are documented where they are used.
	AnswerWithin, HeartbeatTTL, ProbeEvery, StewardTTL, StewardSilence time.Duration
	// LastWord is how long a connection stays on which a node was told that it was removed, or somebody that they are nobody. Tests prolong it; its defaults are lastWord and refusedFor.
	LastWord time.Duration
	// UnprovenBurst and UnprovenEvery are those of audit.Config.
	UnprovenBurst int
	UnprovenEvery time.Duration
	// ProvenBurst and ProvenEvery are those of audit.Config.
	ProvenBurst int
	ProvenEvery time.Duration
}

func (c *Config) defaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Metrics == nil {
		c.Metrics = metrics.New()
	}
	if c.Health == nil {
		c.Health = new(Health)
	}
}

// Run serves the cluster API until ctx is done, and then returns nil. While the store holds no cluster with this node in it, it waits for
// somebody to bootstrap one, or to restore the node into it.
func Run(ctx context.Context, config Config) error {
	config.defaults()
	if err := checkBootstrap(); err != nil {
		return err
	}
	records := store.New(store.Config{Client: config.Client, Leases: config.Leases, ClusterUser: config.ClusterUser, AnswerWithin: config.AnswerWithin})
	followed := cache.New(records, config.Log.Named("cache"))

	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer config.Health.stopped() // after the last worker that tells it something
	defer workers.Wait()
	defer cancel()
	workers.Go(func() { followed.Run(ctx) })
	workers.Go(func() { follow(ctx, followed.News(), config.Metrics) })

	var waitForEntry time.Duration
	if config.AnswerWithin > 0 {
		waitForEntry = config.AnswerWithin + time.Second
	}
	audited := audit.New(audit.Config{
		WaitAtMost: waitForEntry, Store: records, NodeID: config.NodeID, Log: config.Log.Named("audit"), Now: config.Now, Counts: config.Metrics,
		UnprovenBurst: config.UnprovenBurst, UnprovenEvery: config.UnprovenEvery, ProvenBurst: config.ProvenBurst, ProvenEvery: config.ProvenEvery,
	})
	// The last calls end after ctx, and are kept too.
	keeping, keep := context.WithCancel(context.WithoutCancel(ctx))
	defer keep()
	workers.Go(func() { audited.Run(keeping) })

	config.Bootstrap.Attach(records, audited)
	defer config.Bootstrap.Detach()

	// A restored store has its cluster at once, and this node comes into it by BootstrapService.Restore. Until then that may still fail, so nobody is served, and the steward changes nothing.
	snapshot, err := followed.Snapshots().Wait(ctx, func(snapshot *cache.Snapshot) bool {
		return snapshot.Cluster != nil && snapshot.HasNode(config.NodeID) || snapshot.CheckCluster() != nil
	})
	if err != nil {
		return nil // stopped while there was no cluster yet, or this node was not in it
	}
	if err := snapshot.CheckCluster(); err != nil {
		return err
	}
	serving, err := newServing(ctx, records, config)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("issue the curator's own SVID: %w", err)
	}
	stored := scheduled.OpenDirectory(filepath.Join(config.DataDirectory, "snapshots"), config.NodeID)
	peers := newPeers()
	peers.now, peers.counts = config.Now, config.Metrics.Connections
	if config.LastWord > 0 {
		peers.lastWord, peers.refusedFor = config.LastWord, config.LastWord
	}
	workers.Go(func() { peers.follow(ctx, followed.News()) })
	server, err := newServer(ctx, config, records, followed, serving, audited, peers, stored)
	if err != nil {
		return err
	}
	door := &entry{inside: newInside(), peers: peers}
	condition := &condition{host: config.Host}
	entrance := &entrance{config: config, clusterID: snapshot.Cluster.GetClusterId(), snapshots: followed.Snapshots(), condition: condition, door: door}
	listeners, unusable, err := entrance.open(ctx)
	if err != nil {
		server.Stop()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if config.Configuration.Follows() {
		workers.Go(func() { entrance.follow(ctx) })
	}
	if !config.Configuration.Everywhere() {
		workers.Go(func() { entrance.still(ctx) })
	}
	late := make(chan net.Listener)
	if unusable != nil {
		workers.Go(func() { entrance.late(ctx, late) })
	}
	workers.Go(func() { probe(ctx, records, config, condition) })
	workers.Go(func() { resign(ctx, followed.News(), serving, config.Log.Named("ca")) })
	workers.Go(func() {
		steward.Run(ctx, steward.Config{
			Store: records, Snapshots: followed.Snapshots(), Curator: config.NodeID, Log: config.Log.Named("steward"), Now: config.Now,
			Call: func(doing string, about map[string]string) store.Call { return audited.Own(doing, about) },
			TTL:  config.StewardTTL, Silence: config.StewardSilence,
		})
	})
	if config.Snapshots != nil && config.DataDirectory != "" {
		workers.Go(func() {
			scheduled.Run(ctx, scheduled.Config{
				Store: records, Snapshots: followed.Snapshots(), Member: config.Snapshots, Directory: stored, NodeID: config.NodeID,
				Log: config.Log.Named("snapshots"), Now: config.Now, Counts: config.Metrics, Tell: func(problem string) { condition.set(ofSnapshots, problem) },
				Publish: config.Host.SetValue,
			})
		})
	}
	if config.Listener != nil && config.DataDirectory != "" {
		workers.Go(func() {
			archive.Run(ctx, archive.Config{
				Listener: config.Listener, Directory: stored, Snapshots: followed.Snapshots(), NodeID: config.NodeID, Log: config.Log.Named("archive"),
			})
		})
	}
	return serve(ctx, server, peers, append(listeners, door.inside), late)
}

// follow has the metrics know the cluster CA.
func follow(ctx context.Context, snapshots *event.Value[*cache.Snapshot], metrics *metrics.Metrics) {
	for watcher := snapshots.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return
		}
		metrics.CA(snapshot.CA)
	}
}

// serve serves the first listeners and the one that may come late, until ctx is done, and returns when every call has ended.
func serve(ctx context.Context, server *grpc.Server, peers *peers, first []net.Listener, late <-chan net.Listener) error {
	served := make(chan error)
	serving := 0
	begin := func(listener net.Listener) {
		serving++
		go func() {
			err := server.Serve(peers.over(listener))
			if errors.Is(err, grpc.ErrServerStopped) {
				err = nil
			}
			if err != nil {
				err = fmt.Errorf("serve the cluster API on %s: %w", listener.Addr(), err)
			}
			served <- err
		}()
	}
	var failed error
	for _, listener := range first {
		begin(listener)
	}
	for failed == nil && ctx.Err() == nil {
		select {
		case listener := <-late:
			begin(listener)
		case failed = <-served:
			serving--
			server.Stop()
		case <-ctx.Done():
		}
	}
	if failed == nil {
		// Streams end by themselves now (see stopping), other calls are let finish, within bounds.
		hurry := time.AfterFunc(stopWithin, server.Stop)
		defer hurry.Stop()
		server.GracefulStop()
	}
	for ; serving > 0; serving-- {
		failed = errors.Join(failed, <-served)
	}
	return failed
}

// checkBootstrap holds the one service that this package does not guard, since it is on the plugin connection, to its own rule.
func checkBootstrap() error {
	services := map[string]grpc.ServiceInfo{clusterv1.BootstrapService_ServiceDesc.ServiceName: {}}
	_, err := auth.Declared(services, clusterv1.Caller_CALLER_CORE)
	return err
}
