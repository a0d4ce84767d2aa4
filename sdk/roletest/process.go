package roletest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/peercred"
	"github.com/reeveproject/reeve/sdk/role"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// patience is the timeout for what should take milliseconds. It is long because test machines are busy.
const patience = time.Minute

// Process is a started plugin.
type Process struct {
	t         testing.TB
	run       *process
	conn      *grpc.ClientConn
	directory string
	status    event.Value[*rolev1.WatchResponse]
	watched   chan struct{}
	endWatch  context.CancelCauseFunc
	instance  string

	// host and role are what was started. address is where the plugin listens.
	host    *Host
	role    string
	address string
	// greeted is closed by the first status of the present watch.
	greeted chan struct{}
}

// Launch starts a plugin's executable and connects to it. Its environment has only the given variables and go-plugin's. It is killed at the end of
// the test.
func Launch(t testing.TB, executable string, environment ...string) *Process {
	t.Helper()
	p := &Process{t: t, directory: directory(t, "/tmp")}
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  role.Handshake,
		Plugins:          plugin.PluginSet{},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		SkipHostEnv:      true,
		StartTimeout:     patience,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.directory},
		RunnerFunc: func(_ hclog.Logger, template *exec.Cmd, _ string) (runner.Runner, error) {
			p.run = newProcess(executable, append(template.Env, environment...), log)
			return p.run, nil
		},
	})
	address, err := client.Start()
	t.Cleanup(p.clean)
	if err != nil {
		t.Fatalf("%s: %s\n%s", executable, err, p.Log())
	}
	p.address = address.String()
	p.connect()
	return p
}

// LaunchTest starts the test's own binary as a plugin. Its TestMain must call the plugin's main, or role.Serve, if one of the given variables is set.
func LaunchTest(t testing.TB, environment ...string) *Process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Launch(t, executable, environment...)
}

// connect connects to the plugin.
func (p *Process) connect() {
	p.t.Helper()
	conn, err := grpc.NewClient("unix:"+p.address,
		grpc.WithTransportCredentials(peercred.Credentials(nil)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(role.MaxMessageSize), grpc.MaxCallSendMsgSize(role.MaxMessageSize)))
	if err != nil {
		p.t.Fatal(err)
	}
	p.conn = conn
}

func (p *Process) clean() {
	if p.run != nil {
		_ = p.run.Kill(context.Background())
		<-p.run.ended
	}
	// go-plugin's own Kill would connect to the plugin once more, and leak that connection if the plugin is dead. What go-plugin runs for the process
	// ends with the process.
	if p.conn != nil {
		_ = p.conn.Close()
	}
	if p.endWatch != nil {
		p.endWatch(nil)
		<-p.watched
	}
	if p.t.Failed() {
		p.t.Logf("standard error of the plugin:\n%s", p.Log())
	}
}

func (p *Process) logPath() string { return filepath.Join(p.directory, "log") }

// Conn is the plugin connection.
func (p *Process) Conn() *grpc.ClientConn { return p.conn }

// Service is the plugin's RoleService.
func (p *Process) Service() rolev1.RoleServiceClient { return rolev1.NewRoleServiceClient(p.conn) }

// PID is the process's ID.
func (p *Process) PID() int { return p.run.command.Process.Pid }

// Request returns the request that Start sends, for tests that change it before they send it themselves.
func (p *Process) Request(host *Host, role, configuration string) *rolev1.StartRequest {
	p.t.Helper()
	request := &rolev1.StartRequest{
		InstanceId: host.nodeID + "/" + role + "/1", Role: role, NodeId: host.nodeID,
		Configuration: configuration, ConfigurationGeneration: 1,
		HostSocket:       host.socketOf(p.t, role),
		DataDirectory:    filepath.Join(p.directory, "data"),
		RuntimeDirectory: filepath.Join(p.directory, "run"),
		CoreUid:          uint32(os.Getuid()),
		Grants:           host.granting(),
		LaterStates:      host.states(),
	}
	for _, path := range []string{request.GetDataDirectory(), request.GetRuntimeDirectory()} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			p.t.Fatal(err)
		}
	}
	return request
}

// Start starts a role and follows its status. The error is a gRPC status.
func (p *Process) Start(host *Host, role, configuration string) error {
	p.t.Helper()
	request := p.Request(host, role, configuration)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	keeps := p.keepsStore(ctx, role)
	if _, err := p.Service().Start(ctx, request); err != nil {
		return err
	}
	p.instance, p.host, p.role = request.GetInstanceId(), host, role
	if keeps {
		host.KeepStore()
	}
	host.assign(role)
	p.watch()
	return nil
}

// watch follows the status until the stream ends, and publishes it to the host's cluster.
func (p *Process) watch() {
	ctx, cancel := context.WithCancelCause(context.Background())
	service, host, role := p.Service(), p.host, p.role
	watched, greeted := make(chan struct{}), make(chan struct{})
	p.endWatch, p.watched, p.greeted = cancel, watched, greeted
	go func() {
		defer close(watched)
		defer func() {
			// While a core is away, what its node has reported stays in the directory.
			if !errors.Is(context.Cause(ctx), errCoreGone) {
				host.report(role, nil)
			}
		}()
		greet := sync.OnceFunc(func() { close(greeted) })
		stream, err := service.Watch(ctx, &rolev1.WatchRequest{})
		for err == nil {
			var now *rolev1.WatchResponse
			if now, err = stream.Recv(); err == nil {
				p.status.Set(now)
				host.report(role, now)
				greet()
			}
		}
	}()
}

// Status is the role's status as it reports it.
func (p *Process) Status() *event.Value[*rolev1.WatchResponse] { return &p.status }

// Await waits for a status that accept accepts. It fails the test if none comes.
func (p *Process) Await(what string, accept func(*rolev1.WatchResponse) bool) *rolev1.WatchResponse {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now, err := p.status.Wait(ctx, accept)
	if err != nil {
		last, _ := p.status.Get()
		p.t.Fatalf("the role is not %s but %v", what, last)
	}
	return now
}

// AwaitReady waits until the role is Ready. It fails the test if that does not happen.
func (p *Process) AwaitReady() *rolev1.WatchResponse {
	p.t.Helper()
	return p.awaitState(rolev1.RoleState_ROLE_STATE_READY)
}

// AwaitDegraded waits until the role is Degraded. It fails the test if that does not happen.
func (p *Process) AwaitDegraded() *rolev1.WatchResponse {
	p.t.Helper()
	return p.awaitState(rolev1.RoleState_ROLE_STATE_DEGRADED)
}

// AwaitBlocked waits until its machine blocks the role (Blocked). It fails the test if that does not happen.
func (p *Process) AwaitBlocked() *rolev1.WatchResponse {
	p.t.Helper()
	return p.awaitState(rolev1.RoleState_ROLE_STATE_BLOCKED)
}

// AwaitFailed waits until the role has Failed. It fails the test if that does not happen.
func (p *Process) AwaitFailed() *rolev1.WatchResponse {
	p.t.Helper()
	return p.awaitState(rolev1.RoleState_ROLE_STATE_FAILED)
}

// AwaitStopped waits until the role has Stopped. It fails the test if that does not happen.
func (p *Process) AwaitStopped() *rolev1.WatchResponse {
	p.t.Helper()
	return p.awaitState(rolev1.RoleState_ROLE_STATE_STOPPED)
}

func (p *Process) awaitState(state rolev1.RoleState) *rolev1.WatchResponse {
	p.t.Helper()
	return p.Await(state.String(), func(now *rolev1.WatchResponse) bool { return now.GetState() == state })
}

// CheckHealth asks the role whether it is healthy. The error is a gRPC status.
func (p *Process) CheckHealth() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := p.Service().CheckHealth(ctx, &rolev1.CheckHealthRequest{})
	return err
}

// Metrics returns the role's metrics. It fails the test if that fails.
func (p *Process) Metrics() string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	response, err := p.Service().GetMetrics(ctx, &rolev1.GetMetricsRequest{})
	if err != nil {
		p.t.Fatalf("the role's metrics: %s", err)
	}
	return string(response.GetText())
}

// Stop asks the role to stop because it was removed from the node. The error is a gRPC status.
func (p *Process) Stop(grace time.Duration) error {
	return p.StopFor(grace, rolev1.StopReason_STOP_REASON_REMOVED)
}

// StopFor asks the role to stop for a reason. The error is a gRPC status.
func (p *Process) StopFor(grace time.Duration, reason rolev1.StopReason) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace+patience)
	defer cancel()
	_, err := p.Service().Stop(ctx, &rolev1.StopRequest{InstanceId: p.instance, Grace: durationpb.New(grace), Reason: reason})
	return err
}

// Signal sends the process a signal.
func (p *Process) Signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.run.command.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
}

// Exit waits for the process to end and returns its exit status, -1 if a signal ended it. It fails the test if the process does not end.
func (p *Process) Exit() int {
	p.t.Helper()
	select {
	case <-p.run.ended:
	case <-time.After(patience):
		p.t.Fatalf("the process has not ended within %s", patience)
	}
	return p.run.command.ProcessState.ExitCode()
}

// Log is what the process wrote to standard error.
func (p *Process) Log() string {
	content, err := os.ReadFile(p.logPath())
	if err != nil {
		p.t.Error(err)
	}
	return strings.ToValidUTF8(string(content), "\uFFFD")
}
