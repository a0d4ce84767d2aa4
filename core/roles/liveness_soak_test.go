//go:build soak

package roles_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/plugin/plugintest"
	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// ordinaryTests are the tests that run as an ordinary user, too.
const ordinaryTests = "^TestReal"

// seed of the histories; "0": another one each time, which a failure prints.
const seed = "0"

// checks is how many histories there are.
const checks = 2000

func TestRealUnwellRolesAreReplaced(t *testing.T) {
	t.Parallel()
	for how, cause := range inorder.Of(map[string]string{
		plugintest.Hang:   "it did not answer for 15s",
		plugintest.Refuse: "it was not well for 15s: no, thanks",
	}) {
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
			time.Sleep(silence + 5*time.Second) // nothing is to happen, for longer than the timeout
			if now := n.wait(t, "app", in(ready)); now.GetPid() != first.GetPid() || now.GetLastFailure() != nil {
				t.Errorf("status %v", now)
			}
		})
	}
}

// stillness is how long the core is stopped: longer than the timeout.
const stillness = silence + 2*time.Second

// The core itself is stopped for longer than roles may be silent, while it waits for an answer. It kills none of them.
func TestRealStoppedCoreKillsNobody(t *testing.T) {
	t.Parallel()
	n := newRealNode(t)
	record := n.add(t, raw(plugintest.Slow))
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "digest"), []byte(record.GetDigests()[store.Platform]), 0o600); err != nil {
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
