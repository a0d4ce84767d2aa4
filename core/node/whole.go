package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/diskguard"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/metrics"
	"github.com/reeveproject/reeve/core/network"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/operate"
	"github.com/reeveproject/reeve/core/report"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/unseal"
	"github.com/reeveproject/reeve/core/wallclock"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// end is how a whole node has ended.
type end int

const (
	// rolesStopped: the volume is open, and nothing runs on it any more.
	rolesStopped end = iota
	// rolesRunOn: roles run on it without the core.
	rolesRunOn
	// wasSealed: the roles are stopped, and the volume is closed, unless there is an error.
	wasSealed
	// wasDisowned: the cluster has removed the node. The roles are stopped, and the volume is open.
	wasDisowned
)

// whole is a node with its volume open: the rooms and the values between them. It is made anew each time the volume is opened.
type whole struct {
	node   *node
	log    hclog.Logger
	start  time.Time
	opened *unseal.Opened
	// first says that this core has the volume open for the first time.
	first bool

	plugins *plugins
	adopted adopted
	kept    *catalog.Kept
	sealing *operate.Sealing
	// recorder counts events and records them.
	recorder events.Recorder

	net        *network.Room
	clock      *wallclock.Room
	ids        *identity.Room
	reconciler *roles.Reconciler
	client     *cluster.Client
	member     *membership.Room
	doors      *access.Room
	guard      *diskguard.Guard
	prober     *diskguard.Prober
	measured   *metrics.Metrics
	host       *hostapi.Server
	api        *nodeapi.Server
	report     report.Room
	operate    *operate.Room

	// Values whose readers are made before their writers.
	desired   event.Value[roles.Desired]
	storeLeft event.Value[bool]
}

// operate runs the whole node on its open volume until the context ends, somebody seals the node, or it cannot go on.
func (n *node) operate(ctx context.Context, opened *unseal.Opened, first bool) (end, error) {
	w := &whole{node: n, log: n.log, start: n.start, opened: opened, first: first, sealing: operate.NewSealing()}
	if !first {
		w.start = time.Now()
	}
	configuration := opened.Configuration
	n.log.Info("node", "node", configuration.NodeID(), "cluster", configuration.ClusterID, "phase", configuration.Phase, "version", n.config.Version)

	// What fails first otherwise says nothing of how to repair it. A full disk is no reason: the reserve is there.
	if err := storage.CheckWritable(n.storage.Data); diskguard.Refuses(err) {
		return rolesRunOn, err
	}
	order, err := access.NextStart(n.storage.Start(), w.start)
	if err != nil {
		n.log.Warn("cannot save the order of the core's starts: if the clock is set back, the store may not obey the next core", "error", err)
	}
	journal, err := events.Open(events.Config{Log: n.log.Named("events"), Path: n.storage.Events()})
	if err != nil {
		return rolesRunOn, err
	}
	// The journal ends last, because other rooms record events when they end.
	endJournal := run(journal.Run)
	n.events.Open(journal)
	release := func() error {
		n.events.Close()
		endJournal()
		return w.plugins.close()
	}
	if event := operate.Opened(storageOf(n.room)); event != nil {
		n.events.Record(event)
	}
	if err := w.assemble(ctx, order, journal); err != nil {
		left := w.adopted.letGo(ctx)
		return left, errors.Join(unlessStopped(ctx, err), release())
	}
	return w.run(ctx, release)
}

// storageOf is the present state of the volume.
func storageOf(room storageRoom) *clusterv1.StorageStatus {
	now, _ := room.Status().Get()
	return now
}

// assemble makes the rooms, none of which runs yet. It adopts what an earlier core left running.
func (w *whole) assemble(ctx context.Context, order time.Time, journal *events.Journal) (err error) {
	parameters, configuration, held := w.node.config.Parameters, w.opened.Configuration, w.node.storage
	if w.plugins, err = openPlugins(held, parameters.GetSandbox(), configuration.NodeID(), w.start, w.log); err != nil {
		return err
	}
	// Before anything else runs: there is one instance of a role at a time.
	if w.adopted, err = w.plugins.launcher.Adopt(ctx); err != nil {
		return err
	}
	if w.kept, err = catalog.Prepare(ctx, parameters, configuration, held.Assignment(), w.plugins.importer()); err != nil {
		return err
	}
	if err := w.node.room.RenewTicket(ctx, w.opened); err != nil {
		return err
	}
	if w.ids, err = identity.New(identity.Config{
		Log: w.log.Named("identity"), Directory: held.Identity(), Key: configuration.NodeKey, ClusterID: configuration.ClusterID, Owner: configuration.Owner,
		Member: configuration.Phase == seal.Member,
	}); err != nil {
		return err
	}
	supervision := parameters.GetSupervision()
	if w.measured, err = metrics.New(metrics.Config{
		Log: w.log.Named("metrics"), Listen: parameters.GetMetrics().GetListen(), Status: &w.report.Status, Identity: w.ids.Identity(),
		Budget: roles.Budgets(supervision),
	}); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.measured.Close())
		}
	}()
	// Every event is counted before it is recorded.
	w.recorder = w.measured.Recorder(w.node.events)
	w.clock = wallclock.New()
	w.net = network.New(network.Config{Log: w.log.Named("network"), Addresses: parameters.GetNetwork().GetAddresses(), Interfaces: parameters.GetNetwork().GetInterfaces(), Kept: held.Address(),
		Peers: parameters.GetNetwork().GetPeers(), KeptPeers: held.Peers()})
	w.prober = diskguard.NewProber(diskguard.ProbeConfig{Log: w.log.Named("diskguard"), Data: held.Data, Events: w.recorder, Every: w.node.probeEvery})
	hosts := &hostSockets{}
	w.reconciler = roles.New(roles.Config{
		Adopted: w.adopted.running(),
		Log:     w.log.Named("roles"), Launcher: roles.FromPlugin(w.plugins.launcher), Hosts: hosts, Desired: &w.desired,
		Budget: roles.Budgets(supervision), Liveness: roles.LivenessOf(supervision.GetLiveness()), FailuresDir: held.Failures(), Shortage: w.shortage, Hung: w.prober.Hung,
		StoreAway: func() string { return report.StoreAway(w.doors.Store()) },
		BootID:    w.plugins.launcher.BootID(), Events: w.recorder, Launched: w.measured.Launched, Stored: w.plugins.store.Has,
	})
	w.client = cluster.New(cluster.Config{
		Log: w.log.Named("cluster"), Identity: w.ids.Identity(), Capabilities: w.reconciler.Capabilities(), Status: &w.report.Node, ClockSet: w.clock.Set(),
		Incarnation: w.node.room.Incarnation(), Kept: held.Curators(), Nodes: held.Nodes(), Known: w.knownCurators, Peers: w.net.Peers(),
		Generation: held.Generation(), StoreChanged: w.storeChanged,
	})
	w.member = membership.New(membership.Config{
		Log: w.log.Named("membership"), Update: w.node.room.Update, Configuration: *configuration, Identity: w.ids.Identity(), Capabilities: w.reconciler.Capabilities(),
		Contact: w.client.Contact(), ClusterUser: w.kept.ClusterUser, Bootstrap: w.kept.Bootstrap, Restore: w.send(), Enrol: w.enrol(), Curators: w.client.Curators(),
		StoreLeft: &w.storeLeft, Removed: w.client.Removed(), Disown: w.node.room.Disown,
	})
	w.doors = access.New(access.Config{
		Log: w.log, RunDir: held.Run, CoreStart: order, Instances: w.reconciler.Instances(), Capabilities: w.reconciler.Capabilities(),
		Membership: w.member.Status(),
	})
	w.guard = diskguard.New(diskguard.Config{
		Log: w.log.Named("diskguard"), Data: held.Data, Roles: held.Roles(), Reserve: held.Reserve(), Kept: held.Full(),
		Instances: w.reconciler.Instances(), Exempt: catalog.Trusted(&w.desired), Events: w.recorder,
	})
	hostUnary, hostStream := w.measured.Interceptors("host")
	if w.host, err = hostapi.New(hostapi.Config{
		Log: w.log, RunDir: held.Run, Adopted: w.adopted.names(), Membership: w.member.Status(), Directory: &w.report.Directory,
		Network: w.net.Addresses(), Peers: w.net.Peers(), Curators: w.client.Curators(), Operators: &w.report.HostOperators, Access: w.doors.States(), Identity: w.ids.Identity(), Issuer: w.client,
		Unary: []grpc.UnaryServerInterceptor{hostUnary}, Stream: []grpc.StreamServerInterceptor{hostStream},
	}); err != nil {
		return err
	}
	hosts.HostSockets = w.host
	// From here on the whole node serves the socket.
	w.node.unlocked(errOpened)
	w.api, err = w.newAPI(journal)
	return err
}

// newAPI makes the node's own API.
func (w *whole) newAPI(journal *events.Journal) (*nodeapi.Server, error) {
	w.operate = &operate.Room{
		Launcher: w.plugins.launcher, Roles: w.reconciler, Release: w.guard.Release, AllowDebug: w.node.config.Parameters.GetDebugRoles(), Policy: w.kept.First.Policy,
		Desired: &w.desired, Instances: w.reconciler.Instances(), Capabilities: w.reconciler.Capabilities(), Store: w.doors.Store(), View: w.client.View(),
	}
	if w.operate.AllowDebug {
		w.log.Warn("debug_roles is set: the core's user may run any process as a role, in no sandbox; use it for development only")
	}
	unary, stream := w.measured.Interceptors("node")
	return nodeapi.New(nodeapi.Config{
		Log: w.log.Named("nodeapi"), Socket: w.node.socket, Listen: w.node.config.Parameters.GetNetwork().GetApiListen(), Status: &w.report.Status,
		// Whoever makes a node sees at once that its address is taken. Later a role might take it while the core is away, and would have the node be without a core.
		AwaitFree: w.opened.Configuration.Phase == seal.Member,
		Identity:  w.ids.Identity(), Import: w.plugins.importPlugin, LogPath: w.node.logPath,
		Operators: &w.report.Operators, Directory: &w.report.Directory, Restart: w.operate.Restart, Debug: w.operate.Debug, Role: w.operate.Role, Events: journal, Recorder: w.recorder, Metrics: w.measured.Text,
		RecoverStore: w.operate.RecoverStore, Majority: w.operate, ReplaceOwner: w.operate.ReplaceOwner, SetPeers: w.net.SetPeers,
		Storage: operate.Volume{Keys: w.node.room, Events: w.recorder, Sealing: w.sealing},
		Unary:   []grpc.UnaryServerInterceptor{unary}, Stream: []grpc.StreamServerInterceptor{stream},
	})
}

// hostSockets breaks the circle between the reconciler, which opens host sockets, and their server, which watches what the reconciler
// publishes. It is set before either runs.
type hostSockets struct{ roles.HostSockets }

// shortage is what the node lacks that roles need; "": nothing.
func (w *whole) shortage() string {
	problem, _ := w.prober.Problem().Get()
	return cmp.Or(problem, w.node.storage.Shortage())
}
