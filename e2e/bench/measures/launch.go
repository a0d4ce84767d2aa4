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
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/access"
	"github.com/reeveproject/reeve/core/cgroup"
	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/core/plugin/users"
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
	reeve, err := b.newLauncher(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reeve.at.remove()) }()
	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, reeve.once, func(ctx context.Context) (float64, error) { return b.bareLaunch(ctx, reeve.at) })
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
	// at is its own place, which whoever made the launcher removes.
	at       place
	launcher *plugin.Launcher
	hosts    *hostapi.Server
	spec     plugin.Spec
	// data and run are the node's directories, store and users what is in them.
	data, run string
	store     *store.Store
	users     *users.Users
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

// newLauncher makes a launcher in a place of its own.
func (b *Bed) newLauncher(ctx context.Context) (l *launcher, err error) {
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, at.remove())
		}
	}()
	data, run := filepath.Join(at.work, "data"), filepath.Join(at.run, "n")
	for _, directory := range []string{data, run} {
		if err := os.Mkdir(directory, 0o711); err != nil {
			return nil, err
		}
		if err := os.Chmod(directory, 0o711); err != nil {
			return nil, err
		}
	}
	executables, err := store.Open(filepath.Join(data, "plugins"))
	if err != nil {
		return nil, err
	}
	users, err := users.Reserve("/var/lib/reeve/uid-ranges", filepath.Join(data, "uids.json"), data, nil)
	if err != nil {
		return nil, err
	}
	l = &launcher{at: at, data: data, run: run, store: executables, users: users}
	if l.launcher, err = l.successor(); err != nil {
		return nil, err
	}
	l.hosts, err = hostapi.New(hostapi.Config{
		Log: hclog.NewNullLogger(), RunDir: run, Membership: event.New(membership.Status{}), Directory: event.New(&hostv1.Directory{}),
		Network: event.New([]string{"127.0.0.1"}), Peers: event.New([]string(nil)), Curators: event.New([]string(nil)), Access: event.New(access.States{}), Identity: event.New(&identity.Identity{}),
		Operators: event.New(&hostv1.Operators{}),
	})
	if err != nil {
		return nil, err
	}
	executable, err := os.Open(b.Programs.bench("hello"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = executable.Close() }()
	digest, err := executables.Import(ctx, executable)
	if err != nil {
		return nil, err
	}
	manifest, err := l.launcher.Describe(ctx, digest)
	if err != nil {
		return nil, err
	}
	l.spec = plugin.Spec{Generation: 1, Plugin: &clusterv1.PluginRecord{
		Name: manifest.GetName(), Version: manifest.GetVersion(), Digests: map[string]string{store.Platform: digest}, Manifest: manifest, Generation: 1,
	}}
	l.spec = l.as("hello")
	return l, nil
}

// as is what is launched under a name of the plugin's roles, with what it was granted.
func (l *launcher) as(role string, grants ...*rolev1.Grant) plugin.Spec {
	spec := l.spec
	spec.Role, spec.Plugin = role, proto.CloneOf(l.spec.Plugin)
	spec.Plugin.Grants = []*clusterv1.RoleGrants{{Role: role, Grants: grants}}
	return spec
}

// instance is a role that is Ready.
type instance struct {
	*plugin.Instance
	closeSocket func()
}

// stop stops the role, and its host socket.
func (i *instance) stop(ctx context.Context) error {
	defer i.closeSocket()
	return i.Stop(context.WithoutCancel(ctx), plugin.DefaultGrace)
}

// start launches a role and returns when it is Ready. open makes its host socket.
func (l *launcher) start(ctx context.Context, spec plugin.Spec, open func(*plugin.Remit) (string, func(), error)) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	remit, err := l.launcher.Prepare(ctx, spec)
	if err != nil {
		return nil, err
	}
	socket, closeSocket, err := open(remit)
	if err != nil {
		return nil, errors.Join(err, l.launcher.Discard(remit))
	}
	launched, err := l.launcher.Launch(ctx, remit, spec, socket)
	if err != nil {
		closeSocket()
		return nil, err
	}
	i := &instance{launched, closeSocket}
	if _, err = i.Status().Wait(ctx, func(status *rolev1.WatchResponse) bool { return status.GetState() == rolev1.RoleState_ROLE_STATE_READY }); err != nil {
		return nil, errors.Join(err, i.stop(ctx))
	}
	return i, nil
}

// once launches a role and stops it: how long the first took.
func (l *launcher) once(ctx context.Context) (float64, error) { return l.onceAs(ctx, l.spec) }

func (l *launcher) onceAs(ctx context.Context, spec plugin.Spec) (float64, error) {
	begun := time.Now()
	launched, err := l.start(ctx, spec, l.hosts.Open)
	if err != nil {
		return 0, err
	}
	return milliseconds(time.Since(begun)), launched.stop(ctx)
}

// bareLaunch is one of bareHello.
func (b *Bed) bareLaunch(ctx context.Context, at place) (float64, error) {
	begun := time.Now()
	_, end, err := b.bareHello(ctx, at)
	took := time.Since(begun)
	end()
	return milliseconds(took), err
}

// bareHello is what the documentation of go-plugin shows, with the settings of the core: a Unix socket, gRPC, no TLS, nothing of the environment. It returns
// the process that has answered, and what ends it, whatever the error is.
func (b *Bed) bareHello(ctx context.Context, at place) (pid int, end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	command := exec.Command(b.Programs.bench("barehello"))
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: role.Handshake, Plugins: goplugin.PluginSet{role.PluginName: &describer{}}, Cmd: command, SkipHostEnv: true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: at.run}, Logger: hclog.NewNullLogger(),
	})
	protocol, err := client.Client()
	if err != nil {
		return 0, client.Kill, err
	}
	served, err := protocol.Dispense(role.PluginName)
	if err != nil {
		return 0, client.Kill, err
	}
	hello, ok := served.(rolev1.RoleServiceClient)
	if !ok {
		return 0, client.Kill, fmt.Errorf("dispensed a %T", served)
	}
	_, err = hello.Describe(ctx, &rolev1.DescribeRequest{})
	return command.Process.Pid, client.Kill, err
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
