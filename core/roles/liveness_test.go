package roles_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// silence is how long a role may not answer to one who is impatient: longer than a role is kept from the processor on a busy machine.
const silence = 15 * time.Second

// impatient finds out soon what does not answer.
func impatient(c *roles.Config) {
	c.Liveness = roles.Liveness{Interval: 100 * time.Millisecond, Timeout: silence}
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
	if err := syscall.Kill(int(first.GetPid()), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	second := n.wait(t, "store", func(s *clusterv1.InstanceStatus) bool { return s.GetState() == ready && s.GetPid() != first.GetPid() })
	failure := second.GetLastFailure()
	if failure.GetCause() != "it did not answer for 15s" || failure.ExitCode != nil || failure.GetSignal() != "" || failure.GetInstanceId() != first.GetInstanceId() ||
		failure.GetFailures() != 1 || second.GetRestarts() != 1 || !second.GetStarted().AsTime().After(first.GetStarted().AsTime()) {
		t.Errorf("status %v", second)
	}
	if err := syscall.Kill(int(first.GetPid()), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the stopped process is still there: %v", err)
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
	// It waits before it starts the role anew, so that what comes of one end stays to be seen.
	again, err := openRealNode(n.dir, testLog(t), budget(2, time.Hour), func(c *roles.Config) { c.BackoffInitial, c.BackoffMax = time.Hour, time.Hour })
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
