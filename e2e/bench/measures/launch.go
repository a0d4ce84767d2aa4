package measures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/sandbox"
	"github.com/reeveproject/reeve/e2e/bench"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
)

// launch compares the Launcher, with everything that it does for an instance (the number, the directories, the records, the host socket, the user, the
// log, the check of who listens), with go-plugin's own way from exec to the first answer. The executables are of one kind and nearly one size.
func (b *Bed) launch(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(5, 120)
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	reeve, err := b.newLauncher(ctx, at)
	if err != nil {
		return nil, err
	}
	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, reeve.once, func(ctx context.Context) (float64, error) { return b.bareLaunch(ctx, at) })
	if err != nil {
		return nil, err
	}
	notes := []string{"core/plugin's Launcher with a real host socket, in the process of the harness; Reeve's executable is verified already, as in a core that has launched it before"}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "hello", What: "launch to Ready of a role that does nothing", Against: "go-plugin, exec to the first answer: Unix socket, no TLS, gRPC", Unit: "ms",
		Notes: notes,
	}, bench.MedianRatio, bench.AtMost(1.5), pairs)}, nil
}

// launcher launches hello as the core does.
type launcher struct {
	launcher *plugin.Launcher
	hosts    *hostapi.Server
	spec     plugin.Spec
	// data and run are the node's directories, store and users what is in them.
	data, run string
	store     *plugin.Store
	users     *plugin.Users
}

// nodeID is that of the node that the launchers are of.
const nodeID = "reeve-00000000000000000000000000000000"

// successor is the launcher of the next core on the same directories, with everything that the core of a node has.
func (l *launcher) successor() (*plugin.Launcher, error) {
	groups, err := cgroup.Open(nodeID)
	if err != nil {
		return nil, err
	}
	host, err := sandbox.Probe(hclog.NewNullLogger(), groups)
	if err != nil {
		return nil, err
	}
	return plugin.NewLauncher(plugin.Config{
		Log: hclog.NewNullLogger(), Store: l.store, Users: l.users, RunDir: l.run, DataDir: l.data, NodeID: nodeID, CoreStart: time.Now(),
		Sandbox: host, Groups: groups, Defaults: sandbox.Defaults{MemoryBytes: 1 << 30, Processes: 512, OpenFiles: 4096, CPUWeight: 100},
	})
}

func (b *Bed) newLauncher(ctx context.Context, at place) (*launcher, error) {
	data, run := filepath.Join(at.work, "data"), filepath.Join(at.run, "n")
	for _, directory := range []string{data, run} {
		if err := os.Mkdir(directory, 0o711); err != nil {
			return nil, err
		}
		if err := os.Chmod(directory, 0o711); err != nil {
			return nil, err
		}
	}
	store, err := plugin.OpenStore(filepath.Join(data, "plugins"))
	if err != nil {
		return nil, err
	}
	users, err := plugin.ReserveUsers("/var/lib/reeve/uid-ranges", filepath.Join(data, "uids.json"), data, nil)
	if err != nil {
		return nil, err
	}
	l := &launcher{data: data, run: run, store: store, users: users}
	if l.launcher, err = l.successor(); err != nil {
		return nil, err
	}
	l.hosts, err = hostapi.New(hostapi.Config{
		Log: hclog.NewNullLogger(), RunDir: run, Membership: event.New(membership.Status{}), Directory: event.New(&hostv1.Directory{}),
		Network: event.New([]string{"127.0.0.1"}), Access: event.New(access.States{}),
	})
	if err != nil {
		return nil, err
	}
	executable, err := os.Open(b.Programs.bench("hello"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = executable.Close() }()
	digest, err := store.Import(ctx, executable)
	if err != nil {
		return nil, err
	}
	manifest, err := l.launcher.Describe(ctx, digest)
	if err != nil {
		return nil, err
	}
	l.spec = plugin.Spec{Role: "hello", Generation: 1, Plugin: &clusterv1.PluginRecord{
		Name: manifest.GetName(), Version: manifest.GetVersion(), Digests: map[string]string{plugin.Platform: digest}, Manifest: manifest, Generation: 1,
		Grants: []*clusterv1.RoleGrants{{Role: "hello"}},
	}}
	return l, nil
}

func (l *launcher) once(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	remit, err := l.launcher.Prepare(ctx, l.spec)
	if err != nil {
		return 0, err
	}
	socket, closeSocket, err := l.hosts.Open(remit)
	if err != nil {
		return 0, errors.Join(err, l.launcher.Discard(remit))
	}
	defer closeSocket()
	instance, err := l.launcher.Launch(ctx, remit, l.spec, socket)
	if err != nil {
		return 0, err
	}
	_, err = instance.Status().Wait(ctx, func(status *rolev1.WatchResponse) bool { return status.GetState() == rolev1.RoleState_ROLE_STATE_READY })
	took := time.Since(begun)
	return milliseconds(took), errors.Join(err, instance.Stop(ctx, plugin.DefaultGrace))
}

// bareLaunch is what the documentation of go-plugin shows, with the settings of the core: a Unix socket, gRPC, no TLS, nothing of the environment.
func (b *Bed) bareLaunch(ctx context.Context, at place) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: role.Handshake, Plugins: goplugin.PluginSet{role.PluginName: &describer{}},
		Cmd: exec.Command(b.Programs.bench("barehello")), SkipHostEnv: true, AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: at.run}, Logger: hclog.NewNullLogger(),
	})
	defer client.Kill()
	protocol, err := client.Client()
	if err != nil {
		return 0, err
	}
	served, err := protocol.Dispense(role.PluginName)
	if err != nil {
		return 0, err
	}
	hello, ok := served.(rolev1.RoleServiceClient)
	if !ok {
		return 0, fmt.Errorf("dispensed a %T", served)
	}
	_, err = hello.Describe(ctx, &rolev1.DescribeRequest{})
	return milliseconds(time.Since(begun)), err
}

// describer is the host's half of the bare plugin.
type describer struct {
	goplugin.NetRPCUnsupportedPlugin
}

// GRPCServer implements goplugin.GRPCPlugin.
func (*describer) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host's half")
}

// GRPCClient implements goplugin.GRPCPlugin.
func (*describer) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return rolev1.NewRoleServiceClient(conn), nil
}
