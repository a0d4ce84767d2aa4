package role_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/roletest"
)

func launch(t *testing.T, plugin string) *roletest.Process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return roletest.Launch(t, executable, asPlugin+"="+plugin, withoutPause)
}

func start(t *testing.T, host *roletest.Host, role, configuration string) *roletest.Process {
	t.Helper()
	process := launch(t, "probe")
	if err := process.Start(host, role, configuration); err != nil {
		t.Fatal(err)
	}
	return process
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: want %s, got: %v", what, want, err)
	}
}

func wantExit(t *testing.T, process *roletest.Process, want int) {
	t.Helper()
	if got := process.Exit(); got != want {
		t.Errorf("the process ended with status %d, want %d", got, want)
	}
}

func TestDescribe(t *testing.T) {
	process := launch(t, "probe")
	want, err := probe().Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := process.Service().Describe(t.Context(), &rolev1.DescribeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got.GetManifest(), want) {
			t.Errorf("got %v, want %v", got.GetManifest(), want)
		}
	}
	if err := process.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	wantExit(t, process, 0)
}

func TestHello(t *testing.T) {
	process := launch(t, "hello")
	if err := process.Start(roletest.NewHost(t), "hello", ""); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
	if err := process.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	process.AwaitStopped()
	wantExit(t, process, 0)
}

func TestStart(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t, "probe")
	service, request := process.Service(), process.Request(host, "probe", "")

	stream, err := service.Watch(t.Context(), &rolev1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	wantCode(t, "Watch before Start", err, codes.FailedPrecondition)

	unknown := proto.CloneOf(request)
	unknown.Role = "nonesuch"
	_, err = service.Start(t.Context(), unknown)
	wantCode(t, "an unknown role", err, codes.NotFound)
	if !strings.Contains(status.Convert(err).Message(), "probe, other, store") {
		t.Errorf("the error does not say which roles there are: %v", err)
	}
	nameless := proto.CloneOf(request)
	nameless.InstanceId = ""
	_, err = service.Start(t.Context(), nameless)
	wantCode(t, "no instance ID", err, codes.InvalidArgument)

	for range 2 {
		if _, err := service.Start(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	other := proto.CloneOf(request)
	other.InstanceId += "0"
	_, err = service.Start(t.Context(), other)
	wantCode(t, "another instance", err, codes.FailedPrecondition)
	_, err = service.Stop(t.Context(), &rolev1.StopRequest{InstanceId: other.GetInstanceId()})
	wantCode(t, "Stop of another instance", err, codes.FailedPrecondition)
	if _, err := service.Stop(t.Context(), &rolev1.StopRequest{InstanceId: request.GetInstanceId()}); err != nil {
		t.Error(err)
	}
	wantExit(t, process, 0)
}

func TestConfigurationIsRefused(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t, "probe")
	tests := []struct {
		role, configuration string
		paths               []string
	}{
		{"probe", `{"do": 1, "extra/1": true, "filler": ["a", {}]}`, []string{"/do", "/extra~11", "/filler/1"}},
		{"probe", "{\n\"do\": }", []string{""}},
		{"other", `{"any": 1}`, []string{""}},
	}
	for _, test := range tests {
		err := process.Start(host, test.role, test.configuration)
		wantCode(t, test.configuration, err, codes.InvalidArgument)
		var paths []string
		for _, detail := range status.Convert(err).Details() {
			if problem, ok := detail.(*rolev1.ConfigurationProblem); ok {
				paths = append(paths, problem.GetPath())
				if problem.GetMessage() == "" {
					t.Errorf("%s: %s: no message", test.configuration, problem.GetPath())
				}
			}
		}
		if fmt.Sprint(paths) != fmt.Sprint(test.paths) || len(paths) != len(test.paths) {
			t.Errorf("%s: problems at %q, want %q", test.configuration, paths, test.paths)
		}
	}
	// The process is none the worse for it, and an empty configuration sets nothing.
	if err := process.Start(host, "other", " {} "); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
}

// A role may refuse to start with the grants that it has.
func TestGrantsAreRefused(t *testing.T) {
	host, process := roletest.NewHost(t), launch(t, "probe")
	for range 2 {
		err := process.Start(host, "picky", `"[{power map[of:host]}]"`)
		wantCode(t, "without the grant", err, codes.InvalidArgument)
		if message := status.Convert(err).Message(); message != "configuration: granted []" {
			t.Errorf("the refusal says %q", message)
		}
	}
	host.Grant("power", map[string]string{"of": "host"})
	if err := process.Start(host, "picky", `"[{power map[of:host]}]"`); err != nil {
		t.Fatal(err)
	}
	process.AwaitReady()
}

func TestWhatARoleIsTold(t *testing.T) {
	host := roletest.NewHost(t)
	process := start(t, host, "probe", `{"do": "tell"}`)
	request := process.Request(host, "probe", "")
	now := process.AwaitReady()
	want := strings.Join([]string{
		request.GetInstanceId(), request.GetNodeId(), "probe", request.GetDataDirectory(), request.GetRuntimeDirectory(),
	}, " ")
	if got := now.GetValues()["told"]; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if now.GetInstanceId() != request.GetInstanceId() || now.GetRole() != "probe" || now.GetConfigurationGeneration() != 1 {
		t.Errorf("the status does not say of whom it is: %v", now)
	}
}

func TestLargeConfiguration(t *testing.T) {
	process := start(t, roletest.NewHost(t), "probe", `{"filler": []}`+strings.Repeat(" ", 5<<20))
	process.AwaitReady()
}

func TestRunThatEndsEarlyHasFailed(t *testing.T) {
	for _, test := range []struct{ do, reason string }{
		{"return", "the role ended without being asked to"},
		{"fail", "no \uFFFD luck"},
		{"panic", "panic: out of luck"},
		{"goexit", "the role's goroutine was ended by runtime.Goexit"},
	} {
		do, reason := test.do, test.reason
		t.Run(do, func(t *testing.T) {
			process := start(t, roletest.NewHost(t), "probe", fmt.Sprintf(`{"do": %q}`, do))
			if now := process.AwaitFailed(); now.GetReason() != reason {
				t.Errorf("reason %q, want %q", now.GetReason(), reason)
			}
			wantExit(t, process, 1)
			if do == "panic" && !strings.Contains(process.Log(), "plugin_test.go") {
				t.Errorf("the log does not say where the panic was:\n%s", process.Log())
			}
		})
	}
}

func TestRunThatEndsEarlyUnwatched(t *testing.T) {
	t.Parallel() // the process waits until the core could have heard of it
	host, process := roletest.NewHost(t), launch(t, "probe")
	if _, err := process.Service().Start(t.Context(), process.Request(host, "probe", `{"do": "return"}`)); err != nil {
		t.Fatal(err)
	}
	wantExit(t, process, 1)
}

func TestStop(t *testing.T) {
	t.Run("what Run does at the end reaches the host", func(t *testing.T) {
		host := roletest.NewHost(t)
		host.SetFile(file, []byte("dirty"))
		process := start(t, host, "probe", `{"do": "clean"}`)
		process.AwaitReady()
		if err := process.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		process.AwaitStopped()
		wantExit(t, process, 0)
		if got := string(host.File(file)); got != "clean" {
			t.Errorf("the file holds %q", got)
		}
	})
	t.Run("an error at the end", func(t *testing.T) {
		process := start(t, roletest.NewHost(t), "probe", `{"do": "fail-late"}`)
		process.AwaitReady()
		if err := process.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		if now := process.AwaitStopped(); now.GetReason() != "could not clean up" {
			t.Errorf("reason %q", now.GetReason())
		}
		wantExit(t, process, 0)
	})
	t.Run("a role that stays", func(t *testing.T) {
		process := start(t, roletest.NewHost(t), "probe", `{"do": "stay"}`)
		process.AwaitReady()
		wantCode(t, "Stop", process.Stop(50*time.Millisecond), codes.DeadlineExceeded)
		process.AwaitFailed()
		wantExit(t, process, 1)
	})
	t.Run("a role that stays for longer than it says", func(t *testing.T) {
		process := start(t, roletest.NewHost(t), "stays", "")
		process.AwaitReady()
		// Nobody says how long it has.
		_, err := process.Service().Stop(t.Context(), &rolev1.StopRequest{InstanceId: process.Request(roletest.NewHost(t), "stays", "").GetInstanceId()})
		if wantCode(t, "Stop", err, codes.DeadlineExceeded); !strings.Contains(err.Error(), "grace period of 1s") {
			t.Errorf("Stop: %v", err)
		}
		wantExit(t, process, 1)
	})
	t.Run("SIGTERM for longer than it says", func(t *testing.T) {
		process := start(t, roletest.NewHost(t), "stays", "")
		process.AwaitReady()
		process.Signal(syscall.SIGTERM)
		if now := process.AwaitFailed(); now.GetReason() != "the role did not stop within its grace period of 1s" {
			t.Errorf("reason %q", now.GetReason())
		}
		wantExit(t, process, 1)
	})
	t.Run("SIGTERM", func(t *testing.T) {
		process := start(t, roletest.NewHost(t), "probe", "")
		process.AwaitReady()
		process.Signal(syscall.SIGTERM)
		process.AwaitStopped()
		wantExit(t, process, 0)
	})
	t.Run("SIGINT does nothing", func(t *testing.T) {
		process := start(t, roletest.NewHost(t), "probe", "")
		process.AwaitReady()
		process.Signal(syscall.SIGINT)
		// Signals of the same process are taken in the order of their numbers: SIGINT is done with when SIGTERM is.
		process.Signal(syscall.SIGTERM)
		wantExit(t, process, 0)
	})
}

// A role says that its machine keeps it Blocked to a core that knows what that is, and to another one that it is Starting.
func TestBlocked(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(*roletest.Host)
		state   rolev1.RoleState
	}{
		{"a core that knows it", func(*roletest.Host) {}, rolev1.RoleState_ROLE_STATE_BLOCKED},
		{"an older core", (*roletest.Host).KnowFirstStates, rolev1.RoleState_ROLE_STATE_STARTING},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := roletest.NewHost(t)
			test.prepare(host)
			process := start(t, host, "probe", `{"do": "blocked"}`)
			is := func(reason string) func(*rolev1.WatchResponse) bool {
				return func(now *rolev1.WatchResponse) bool { return now.GetState() == test.state && now.GetReason() == reason }
			}
			process.Await("waiting for the lamp", is("the machine has no \uFFFD lamp"))
			host.Network.Set([]string{"192.0.2.1"})
			process.AwaitReady()
			host.Network.Set([]string{"192.0.2.2"})
			process.Await("waiting for the lamp again", is("the lamp is gone"))
			if test.state == rolev1.RoleState_ROLE_STATE_BLOCKED {
				process.AwaitBlocked()
			}
			if err := process.Stop(time.Minute); err != nil {
				t.Error(err)
			}
			process.AwaitStopped()
			wantExit(t, process, 0)
		})
	}
}

func TestOutputGoesToTheLog(t *testing.T) {
	process := start(t, roletest.NewHost(t), "probe", `{"do": "shout"}`)
	process.AwaitReady()
	for _, line := range []string{"end of output", "end of errors", "end of println"} {
		if !strings.Contains(process.Log(), line+"\n") {
			t.Errorf("%q is not in the log", line)
		}
	}
}

func TestPublish(t *testing.T) {
	process := start(t, roletest.NewHost(t), "probe", `{"do": "publish"}`)
	now := process.Await("degraded", func(now *rolev1.WatchResponse) bool {
		return now.GetState() == rolev1.RoleState_ROLE_STATE_DEGRADED || now.GetState() == rolev1.RoleState_ROLE_STATE_READY
	})
	var endpoints []string
	for _, endpoint := range now.GetEndpoints() {
		endpoints = append(endpoints, endpoint.GetName()+"="+endpoint.GetAddress())
	}
	if got, want := strings.Join(endpoints[:2], " "), "http=127.0.0.1:4 other=127.0.0.1:3"; got != want {
		t.Errorf("endpoints %q, want %q", got, want)
	}
	if long := strings.Repeat("x", 512); len(endpoints) != 32 || endpoints[2] != "e0="+long || endpoints[31] != "e29="+long {
		t.Errorf("%d endpoints: %q", len(endpoints), endpoints)
	}
	values := now.GetValues()
	if len(values) != 32 || len(values["size"]) != 4096 || values["n30"] != "x" {
		t.Errorf("values: %v", values)
	}
	for _, name := range []string{"oversize", "bad", "gone", "n31", "", "two\nlines", strings.Repeat("x", 65)} {
		if _, there := values[name]; there {
			t.Errorf("the value %q was published", name)
		}
	}
}

func TestHostIsFoundAgain(t *testing.T) {
	host := roletest.NewHost(t)
	set := func(n uint64) {
		host.Membership.Set(&hostv1.Membership{Reason: fmt.Sprint("reason ", n)})
		host.Directory.Set(&hostv1.Directory{Revision: n})
		host.Network.Set([]string{"192.0.2.1", fmt.Sprint("192.0.2.", n)})
	}
	set(2)
	process := start(t, host, "probe", `{"do": "follow"}`)
	seen := func(n uint64) func(*rolev1.WatchResponse) bool {
		return func(now *rolev1.WatchResponse) bool {
			values := now.GetValues()
			return values["membership"] == fmt.Sprint("reason ", n) && values["directory"] == fmt.Sprint(n) &&
				values["network"] == fmt.Sprint("192.0.2.1 192.0.2.", n)
		}
	}
	process.Await("following", seen(2))
	host.Stop()
	set(3)
	if err := host.Serve(); err != nil {
		t.Fatal(err)
	}
	process.Await("following again", seen(3))
	if err := process.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	wantExit(t, process, 0)
}

// A role that is stopped while its core is away does not wait for it.
func TestStopWithoutHostThatIsNeeded(t *testing.T) {
	host := roletest.NewHost(t)
	process := start(t, host, "probe", `{"do": "clean"}`)
	process.AwaitReady()
	host.Stop()
	process.Signal(syscall.SIGTERM)
	if now := process.AwaitStopped(); !strings.Contains(now.GetReason(), "host: read "+file) {
		t.Errorf("reason %q", now.GetReason())
	}
	wantExit(t, process, 0)
}

// A role can be stopped while its core is away.
func TestStopWithoutHost(t *testing.T) {
	host := roletest.NewHost(t)
	process := start(t, host, "probe", `{"do": "follow"}`)
	process.AwaitReady()
	host.Stop()
	process.Signal(syscall.SIGTERM)
	wantExit(t, process, 0)
}

func TestStartedByHand(t *testing.T) {
	for plugin, want := range map[string][]string{
		"probe":  {"reeve plugin add /", "probe 1.2.3", "does what it is told"},
		"broken": {`plugin name "Broken"`, `version "v1"`, `duplicate role "x"`, `role "x": no Run function`},
	} {
		executable, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command(executable)
		command.Env = []string{asPlugin + "=" + plugin, withoutPause}
		output, err := command.CombinedOutput()
		if command.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: want exit status 1: %v", plugin, err)
		}
		for _, text := range want {
			if !strings.Contains(string(output), text) {
				t.Errorf("%s: %q is not in the output:\n%s", plugin, text, output)
			}
		}
	}
}
