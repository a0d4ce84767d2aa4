package roles_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// impatient finds out soon what does not answer. The time is still long enough for a busy machine.
func impatient(c *roles.Config) {
	c.Liveness = roles.Liveness{Interval: 100 * time.Millisecond, Timeout: 3 * time.Second}
}

// raw is a plugin that does without the SDK and behaves in some way when it is asked whether it is well.
func raw(how string) plugintest.Variant {
	return plugintest.Variant{
		Name: "raw", Before: "raw", RPCs: map[string]string{"CheckHealth": how}, Roles: []plugintest.Role{{Name: "app"}},
	}
}

func TestRealStoppedRoleIsReplaced(t *testing.T) {
	t.Parallel()
	n := newRealNode(t, impatient)
	n.desire(n.add(t, pair), 1, plugintest.Configuration{Do: "ready"}, "store")
	first := n.wait(t, "store", in(ready))
	began := time.Now()
	if err := syscall.Kill(int(first.GetPid()), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second := n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetPid() != first.GetPid() })
	// 5 s, where nothing else runs.
	if took := time.Since(began); took > plugin.DefaultGrace+3*time.Second {
		t.Errorf("it took %s: a process that cannot hear was given time to stop", took)
	}
	failure := second.GetLastFailure()
	if failure.GetCause() != "it did not answer for 3s" || failure.ExitCode != nil || failure.GetSignal() != "" || failure.GetInstanceId() != first.GetInstanceId() ||
		failure.GetFailures() != 1 || second.GetRestarts() != 1 || !second.GetStarted().AsTime().After(first.GetStarted().AsTime()) {
		t.Errorf("status %v", second)
	}
	if err := syscall.Kill(int(first.GetPid()), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the stopped process is still there: %v", err)
	}
}

func TestRealUnwellRolesAreReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long, and is the same for every user")
	}
	t.Parallel()
	for how, cause := range map[string]string{
		plugintest.Hang:   "it did not answer for 3s",
		plugintest.Refuse: "it was not well for 3s: no, thanks",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := newRealNode(t, impatient, budget(1, time.Hour))
			n.desire(n.add(t, raw(how)), 1, plugintest.Configuration{}, "app")
			first := n.wait(t, "app", in(ready))
			second := n.wait(t, "app", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetRestarts() == 1 })
			if failure := second.GetLastFailure(); failure.GetCause() != cause || failure.GetInstanceId() != first.GetInstanceId() {
				t.Errorf("failure %v", failure)
			}
			last := n.wait(t, "app", in(failed))
			if !strings.Contains(last.GetReason(), cause+"; it is started again by: reeve node role restart reeve-"+filepath.Base(n.dir)+" app") {
				t.Errorf("reason %q", last.GetReason())
			}
		})
	}
	for _, how := range []string{plugintest.Absent, plugintest.Slow} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := newRealNode(t, impatient)
			n.desire(n.add(t, raw(how)), 1, plugintest.Configuration{}, "app")
			first := n.wait(t, "app", in(ready))
			time.Sleep(5 * time.Second) // nothing is to happen, for longer than the timeout
			if now := n.wait(t, "app", in(ready)); now.GetPid() != first.GetPid() || now.GetLastFailure() != nil {
				t.Errorf("status %v", now)
			}
		})
	}
}

func TestRealBudget(t *testing.T) {
	t.Parallel()
	n := newRealNode(t, budget(2, time.Hour))
	record := n.add(t, pair)
	crashes := plugintest.Configuration{Do: "exit", Log: []string{"so it goes", "\x1b[31mfarewell"}}
	n.desire(record, 1, crashes, "store")
	fallen := n.wait(t, "store", in(failed))
	failure := fallen.GetLastFailure()
	if failure.GetExitCode() != 3 || failure.ExitCode == nil || failure.GetFailures() != 3 || failure.GetBudget() != 2 || fallen.GetPid() != 0 ||
		!strings.HasPrefix(fallen.GetReason(), "it failed 3 times within 1h, and 2 are allowed: ") || !strings.Contains(fallen.GetReason(), "exited with status 3") {
		t.Errorf("status %v", fallen)
	}
	if lines := strings.Join(failure.GetLines(), "\n"); !strings.Contains(lines, "so it goes\n"+`\x1b[31mfarewell`) {
		t.Errorf("lines %q", lines)
	}
	// A core that starts again.
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	again, err := openRealNode(n.dir, testLog(t), budget(2, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := again.stop(); err != nil {
			t.Error(err)
		}
	}()
	again.desire(record, 1, crashes, "store")
	still := again.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s != nil })
	if still.GetState() != failed || still.GetReason() != fallen.GetReason() || still.GetLastFailure().GetInstanceId() != failure.GetInstanceId() {
		t.Errorf("status %v", still)
	}
	if _, err := again.Restart(t.Context(), "store", false); err != nil {
		t.Fatal(err)
	}
	again.wait(t, "store", func(s *clusterv1.InstanceStatus) bool {
		return s.GetState() == backoff && s.GetLastFailure().GetFailures() == 1
	})
	again.desire(record, 2, plugintest.Configuration{Do: "ready"}, "store")
	runs := again.wait(t, "store", in(ready))
	id, err := again.Restart(t.Context(), "store", false)
	if err != nil || id != runs.GetInstanceId() {
		t.Errorf("%q, %v", id, err)
	}
	again.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetPid() != runs.GetPid() })
}

// coreVariable makes the test program a core that a test stops.
const coreVariable = "REEVE_TEST_CORE"

// stillness is how long the core is stopped: longer than the timeout.
const stillness = 5 * time.Second

// The core itself is stopped for longer than roles may be silent, while it waits for an answer. It kills none of them.
func TestRealStoppedCoreKillsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long, and is the same for every user")
	}
	t.Parallel()
	n := newRealNode(t)
	record := n.add(t, raw(plugintest.Slow))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "digest"), []byte(record.GetDigests()[plugin.Platform]), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), coreVariable+"="+n.dir)
	command.Stderr = t.Output()
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	lines.Scan()
	first := lines.Text()
	if !strings.HasPrefix(first, "pid ") {
		t.Fatalf("the core says %q", first)
	}
	for range 2 {
		if err := syscall.Kill(command.Process.Pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stillness)
		if err := syscall.Kill(command.Process.Pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(input, "and now?"); err != nil {
			t.Fatal(err)
		}
		lines.Scan()
		if now := lines.Text(); now != first {
			t.Errorf("the core says %q, and said %q before", now, first)
		}
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

// core runs a role that takes long to answer, and says which process it is whenever it is asked, a little later.
func core(dir string) int {
	n, err := openRealNode(dir, hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Debug}), impatient)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	digest, err := os.ReadFile(filepath.Join(dir, "digest"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	n.desire(plugintest.Record(string(digest), raw(plugintest.Slow)), 1, plugintest.Configuration{}, "app")
	questions := bufio.NewScanner(os.Stdin)
	for {
		fmt.Println(n.say("app"))
		if !questions.Scan() {
			break
		}
		time.Sleep(4 * plugintest.Slowness) // what was decided falsely is seen by then
	}
	if err := n.stop(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// say waits until a role is Ready and says which process it is.
func (n *realNode) say(name string) string {
	for watcher := n.Instances().Watch(); ; <-watcher.Changed() {
		now, _ := watcher.Latest()
		for _, instance := range now {
			if s := instance.Status; s.GetRole() == name && s.GetState() == ready {
				return fmt.Sprintf("pid %d, last failure %v", s.GetPid(), s.GetLastFailure())
			}
		}
	}
}
