package measures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/e2e/bench"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
	"github.com/reeveproject/reeve/sdk/role"
)

// sandbox compares the launch of a confined role with that of the same executable by the same Launcher without a sandbox: what the difference costs is the
// user, the view of the file systems, Landlock, the filter of system calls, the control group and the bounds.
func (b *Bed) sandbox(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(5, 120)
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	confined, err := b.newLauncher(ctx, at)
	if err != nil {
		return nil, err
	}
	free := *confined
	free.spec = unconfined(confined.spec, "hello-0")
	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, confined.once, free.once)
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "start", What: "launch to Ready of a confined role", Against: "the same executable by the same Launcher, privileged", Unit: "ms",
		Notes: []string{"both executables are verified; what this user or machine cannot enforce is left out of the confined one too"},
	}, bench.MedianRatio, bench.AtMost(1.3), pairs)}, nil
}

// unconfined is another role of the same plugin that was granted to have no sandbox.
func unconfined(spec plugin.Spec, role string) plugin.Spec {
	record := proto.CloneOf(spec.Plugin)
	record.Grants = []*clusterv1.RoleGrants{{Role: role, Grants: []*rolev1.Grant{{Name: remit.Privileged}}}}
	spec.Plugin, spec.Role = record, role
	return spec
}

// rolesAtOnce is how many roles run at once where their memory is looked at.
const rolesAtOnce = 50

// memory compares what each of many roles that do nothing has of memory that it shares with nobody, with the same of bare plugins.
func (b *Bed) memory(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	_, count := b.count(0, rolesAtOnce)
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	reeve, err := b.newLauncher(ctx, at)
	if err != nil {
		return nil, err
	}
	say("%d roles, and as many bare plugins", count)
	ours, theirs := make([]float64, count), make([]float64, count)
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	for n := range count {
		end, err := reeve.keep(ctx, fmt.Sprintf("hello-%d", n), &ours[n])
		defer func() { err = errors.Join(err, end()) }()
		if err != nil {
			return nil, err
		}
		endBare, err := b.keepBare(ctx, at, &theirs[n])
		defer endBare()
		if err != nil {
			return nil, err
		}
	}
	var pairs []bench.Pair
	for n := range count {
		pairs = append(pairs, bench.Pair{A: ours[n], B: theirs[n]})
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "private", What: fmt.Sprintf("private memory of each of %d roles that do nothing, above that of a bare plugin", count),
		Against: "go-plugin with a service of one method", Unit: "MB", Notes: []string{"Private_Clean and Private_Dirty when it has become Ready, with all the others running; MB are 10^6 bytes"},
	}, bench.MedianDifference, bench.AtMost(4), pairs)}, nil
}

// keep launches a role and leaves it running until end is called. What it has for itself is written to private.
func (l *launcher) keep(ctx context.Context, name string, private *float64) (end func() error, err error) {
	end = func() error { return nil }
	spec := l.spec
	record := proto.CloneOf(spec.Plugin)
	record.Grants[0].Role, spec.Role = name, name
	spec.Plugin = record
	remit, err := l.launcher.Prepare(ctx, spec)
	if err != nil {
		return end, err
	}
	socket, closeSocket, err := l.hosts.Open(remit)
	if err != nil {
		return end, errors.Join(err, l.launcher.Discard(remit))
	}
	instance, err := l.launcher.Launch(ctx, remit, spec, socket)
	if err != nil {
		closeSocket()
		return end, err
	}
	end = func() error {
		defer closeSocket()
		return instance.Stop(context.WithoutCancel(ctx), plugin.DefaultGrace)
	}
	_, err = instance.Status().Wait(ctx, func(status *rolev1.WatchResponse) bool { return status.GetState() == rolev1.RoleState_ROLE_STATE_READY })
	if err != nil {
		return end, err
	}
	*private, err = privateOf(instance.Process().PID)
	return end, err
}

func (b *Bed) keepBare(ctx context.Context, at place, private *float64) (end func(), err error) {
	command := exec.Command(b.Programs.bench("barehello"))
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: role.Handshake, Plugins: goplugin.PluginSet{role.PluginName: &describer{}}, Cmd: command, SkipHostEnv: true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC}, UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: at.run}, Logger: hclog.NewNullLogger(),
	})
	protocol, err := client.Client()
	if err != nil {
		return client.Kill, err
	}
	served, err := protocol.Dispense(role.PluginName)
	if err != nil {
		return client.Kill, err
	}
	hello, ok := served.(rolev1.RoleServiceClient)
	if !ok {
		return client.Kill, fmt.Errorf("dispensed a %T", served)
	}
	if _, err := hello.Describe(ctx, &rolev1.DescribeRequest{}); err != nil {
		return client.Kill, err
	}
	*private, err = privateOf(command.Process.Pid)
	return client.Kill, err
}

// privateOf is the memory that a process shares with no other, in 10^6 bytes.
func privateOf(pid int) (float64, error) {
	path := filepath.Join("/proc", fmt.Sprint(pid), "smaps_rollup")
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	private, found := 0.0, 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "Private_Clean" && name != "Private_Dirty" {
			continue
		}
		var kib float64
		if _, err := fmt.Sscan(value, &kib); err != nil {
			return 0, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		private, found = private+kib*1024/1e6, found+1
	}
	if found != 2 {
		return 0, fmt.Errorf("%s names no private memory", path)
	}
	return private, nil
}
