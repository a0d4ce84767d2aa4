package node

import (
	"context"
	"crypto/ed25519"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/diskguard"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/footprint"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/metrics"
	"github.com/reeveproject/reeve/core/network"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what a node starts from.
type Config struct {
	Log        hclog.Logger
	Parameters *nodev1.Parameters
	// Version is the version of this program.
	Version string
}

// ErrLeave, as the cause of the end of Run's context, has Run leave the roles running for the core that comes next, but for those that end with
// their core.
var ErrLeave = roles.ErrLeave

// Run runs a node until the context ends, then stops its roles and returns nil; it leaves them running if the cause is ErrLeave. It returns an error if
// the node cannot go on, its roles are then stopped too, or if it cannot start: what an earlier core left running then runs on.
func Run(ctx context.Context, config Config) (err error) {
	start := time.Now()
	log := config.Log
	reconciling := false // from then on the instances are the reconciler's
	base, err := open(config.Parameters, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.storage.Close()) }()
	nodeID := names.NodeID(base.sealed.NodeKey.Public().(ed25519.PublicKey))
	log.Info("node", "node", nodeID, "cluster", base.sealed.ClusterID, "phase", base.sealed.Phase, "version", config.Version)

	order, err := nextStart(base.storage.Start(), start)
	if err != nil {
		log.Warn("the order of the core's starts cannot be kept: after a clock that was set back, the store may not listen to the next core", "error", err)
	}
	journal, err := events.Open(events.Config{Log: log.Named("events"), Path: base.storage.Events()})
	if err != nil {
		return err
	}
	plugins, err := openPlugins(base, nodeID, start, log)
	if err != nil {
		return err
	}
	// What an earlier core left running is adopted or ended before anything else runs: there is one instance of a role at a time.
	adopted, err := adopt(ctx, plugins.launcher)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { adopted.unless(ctx, reconciling) }()
	known, bootstrap, err := prepare(ctx, config.Parameters, base, plugins)
	if err != nil {
		return unlessStopped(ctx, err)
	}

	// The values that this package writes itself.
	var (
		desired    event.Value[roles.Desired]
		nodeStatus event.Value[*clusterv1.NodeStatus]
		fullStatus event.Value[*nodev1.Status]
		directory  event.Value[*hostv1.Directory]
		operators  event.Value[[]*clusterv1.Operator]
	)
	supervision := config.Parameters.GetSupervision()
	measured, err := metrics.New(metrics.Config{
		Log: log.Named("metrics"), Listen: config.Parameters.GetMetrics().GetListen(), Status: &fullStatus, Budget: budgets(supervision),
	})
	if err != nil {
		return err
	}
	// Whatever records an event is counted on its way.
	recorder := measured.Recorder(journal)
	net := network.New(network.Config{Log: log.Named("network"), Addresses: config.Parameters.GetNetwork().GetAddresses()})
	ids, err := identity.New(identity.Config{
		Log: log.Named("identity"), Directory: base.storage.Identity(), Key: base.sealed.NodeKey, ClusterID: base.sealed.ClusterID, Owner: base.sealed.Owner,
		Member: base.sealed.Phase == seal.Member,
	})
	if err != nil {
		return err
	}
	hosts := &hostSockets{}
	reconciler := roles.New(roles.Config{
		Adopted: adopted.running(),
		Log:     log.Named("roles"), Launcher: roles.FromPlugin(plugins.launcher), Hosts: hosts, Desired: &desired,
		Budget: budgets(supervision), Liveness: liveness(supervision.GetLiveness()), FailuresDir: base.storage.Failures(), Shortage: base.storage.Shortage,
		BootID: plugins.launcher.BootID(), Events: recorder, Launched: measured.Launched, Stored: plugins.store.Has,
	})
	client := cluster.New(cluster.Config{
		Log: log.Named("cluster"), Identity: ids.Identity(), Capabilities: reconciler.Capabilities(), Status: &nodeStatus,
	})
	member := membership.New(membership.Config{
		Log: log.Named("membership"), Sealed: base.seal, Configuration: *base.sealed, Identity: ids.Identity(), Capabilities: reconciler.Capabilities(),
		Contact: client.Contact(), ClusterUser: known.clusterUser(), Bootstrap: bootstrap,
	})
	doors := access.New(access.Config{
		Log: log, RunDir: base.storage.Run, CoreStart: order, Instances: reconciler.Instances(), Capabilities: reconciler.Capabilities(),
		Membership: member.Status(),
	})
	guard := diskguard.New(diskguard.Config{
		Log: log.Named("diskguard"), Data: base.storage.Data, Roles: base.storage.Roles(), Reserve: base.storage.Reserve(), Kept: base.storage.Full(),
		Instances: reconciler.Instances(), Exempt: trusted(&desired), Events: recorder,
	})
	operate := operations{
		capabilities: reconciler.Capabilities(), store: doors.Store(), restart: reconciler.Restart, release: guard.Release,
	}
	teller := roleTeller{desired: &desired, instances: reconciler.Instances(), store: doors.Store()}
	hostUnary, hostStream := measured.Interceptors("host")
	host, err := hostapi.New(hostapi.Config{
		Log: log, RunDir: base.storage.Run, Adopted: adopted.names(), Membership: member.Status(), Directory: &directory, Network: net.Addresses(), Access: doors.States(),
		Unary: []grpc.UnaryServerInterceptor{hostUnary}, Stream: []grpc.StreamServerInterceptor{hostStream},
	})
	if err != nil {
		return errors.Join(err, measured.Close())
	}
	hosts.HostSockets = host
	nodeUnary, nodeStream := measured.Interceptors("node")
	api, err := nodeapi.New(nodeapi.Config{
		Log: log.Named("nodeapi"), Socket: base.storage.NodeSocket(), Listen: config.Parameters.GetNetwork().GetApiListen(), Status: &fullStatus,
		Identity: ids.Identity(), Import: plugins.importPlugin, LogPath: base.logPath,
		Operators: &operators, Restart: operate.restartRole, Role: teller.role, Events: journal, Recorder: recorder, Metrics: measured.Text,
		RecoverStore: operate.recoverStore, ReplaceOwner: operate.replaceOwner,
		Unary: []grpc.UnaryServerInterceptor{nodeUnary}, Stream: []grpc.StreamServerInterceptor{nodeStream},
	})
	if err != nil {
		return errors.Join(err, measured.Close())
	}

	// The journal ends last, so that what the others record at their end is kept.
	defer run(journal.Run)()
	reconciling = true
	group, groupCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	group.Go(func() error {
		// That the core stops is recorded when it is asked to.
		asked, cancel := context.WithCancel(groupCtx)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return events.Follow(asked, recorder, events.Sources{
			Version: config.Version, Membership: member.Status(), Store: doors.Store(), Addresses: net.Addresses(),
		})
	})
	group.Go(func() error { return measured.Run(groupCtx, reconciler.Instances(), reconciler.Capabilities()) })
	group.Go(func() error { return operatorsOf(groupCtx, client.View(), &operators) })
	group.Go(func() error { return net.Run(groupCtx) })
	group.Go(func() error { return ids.Run(groupCtx, member.Credentials(), client.Credentials()) })
	group.Go(func() error { return member.Run(groupCtx) })
	group.Go(func() error { return doors.Run(groupCtx) })
	group.Go(func() error { return client.Run(groupCtx) })
	group.Go(func() error { return api.Run(groupCtx) })
	group.Go(func() error {
		return chooser{
			log: log.Named("desired"), path: base.storage.Assignment(), known: known, phase: member.Phase(), membership: member.Status(),
			problem: member.Problem(), view: client.View(), full: guard.Full(), imported: &plugins.imported, missing: plugins.missingOf, desired: &desired,
		}.run(groupCtx)
	})
	group.Go(func() error { return guard.Run(groupCtx) })
	group.Go(func() error {
		return wiper{
			log: log.Named("wiper"), layout: base.storage.Layout, view: client.View(), instances: reconciler.Instances(),
			bar: reconciler.Bar, unbar: reconciler.Unbar, events: recorder,
		}.run(groupCtx)
	})
	group.Go(func() error {
		return collector{
			log: log.Named("executables"), path: base.storage.Executables(), desired: &desired, instances: reconciler.Instances(), view: client.View(),
			known: known.Plugins, genesis: bootstrap != nil, collect: plugins.store.Collect, now: time.Now,
		}.run(groupCtx)
	})
	group.Go(func() error {
		return reporter{
			start: start, version: config.Version, volume: string(base.sealed.VolumeKind), isolation: plugins.isolation(), missing: plugins.missing(), apiAddress: api.Address(),
			addresses: net.Addresses(), instances: reconciler.Instances(), membership: member.Status(), identity: ids.Identity(), curators: client.Curators(),
			view: client.View(), store: doors.Store(), node: &nodeStatus, full: &fullStatus, directory: &directory,
		}.run(groupCtx)
	})
	group.Go(func() error {
		rest(groupCtx, member.Status(), log)
		return nil
	})
	group.Go(func() error {
		// The roles end first, while everything that they may still need is there.
		rolesCtx, cancel := context.WithCancelCause(groupCtx)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
		if err := reconciler.Run(rolesCtx); err != nil {
			return err
		}
		if errors.Is(context.Cause(rolesCtx), ErrLeave) {
			host.Leave()
			log.Info("the roles run on without a core")
		}
		return errStopped
	})
	if err := group.Wait(); !errors.Is(err, errStopped) {
		return err
	}
	log.Info("stopped")
	return nil
}

// run runs a room that never fails until the function that it returns is called.
func run(room func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = room(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// restAfter is how long after its first contact to the cluster a node has come to rest: its roles are started and all is reported.
const restAfter = 10 * time.Second

// rest gives back, once, the memory that only the start needed.
func rest(ctx context.Context, status *event.Value[membership.Status], log hclog.Logger) {
	if _, err := membership.GetHome(ctx, status); err != nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(restAfter):
		if err := footprint.GiveBack(); err != nil {
			log.Warn("memory that only the start needed cannot be given back", "error", err)
		}
	}
}

// unlessStopped returns err, unless the context has ended: then nothing is wrong, the node was stopped while it started.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// errStopped ends the group of rooms when all roles have been stopped as asked.
var errStopped = errors.New("node: stopped")

// hostSockets breaks the circle between the reconciler, which opens host sockets, and their server, which watches what the reconciler
// publishes. It is set before either runs.
type hostSockets struct{ roles.HostSockets }
