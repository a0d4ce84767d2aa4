//go:build soak

package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/vm/internal/guestapi"
	"github.com/reeveproject/reeve/e2e/vm/internal/machine"
)

const (
	// patience is how long anything in a guest may take, by the guest's own clock that nobody sets: what takes longest takes half a minute.
	patience = 2 * time.Minute
	// look is the pause between two looks into a guest.
	look = 100 * time.Millisecond
	// reevedLog is the log of reeved in the guest: in memory, so that it is nobody's secret on a disk.
	reevedLog = "/tmp/reeved.log"
)

// guest is a machine that is on, for one test.
type guest struct {
	*machine.Guest
	// reeved is the process of the core; 0: it was not started.
	reeved int
	// watch is what the node has said of itself since the core was started.
	watch *watch
}

// newMachine makes a machine, and skips the test where there can be none.
func newMachine(t *testing.T, name string) *machine.Machine {
	t.Helper()
	if suite.lacking != nil {
		t.Skipf("cannot run: %v", suite.lacking)
	}
	m, err := suite.base.New(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Remove(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// boot switches a machine on. It is switched off when the test ends, if it still is on, and then shows what it wrote if the test has failed.
func boot(t *testing.T, m *machine.Machine, options machine.Options) *guest {
	t.Helper()
	on, err := m.Boot(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{Guest: on}
	t.Cleanup(func() {
		if t.Failed() {
			g.show(t)
		}
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the machine answers after %s (%s of processor time)", on.Up.Round(10*time.Millisecond), on.CPU().Round(10*time.Millisecond))
	return g
}

// show writes down what there is to know of a guest that failed.
func (g *guest) show(t *testing.T) {
	t.Helper()
	t.Logf("the machine's console, at the end:\n%s", g.Console())
	// The test's context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, line := range []string{"grep -v 'apply request took too long\\|trace: \\|request stats' " + reevedLog + " | tail -n 60", "tail -n 3 /tmp/status.*", "dmesg | tail -n 20", "cat /proc/mounts; df; ls -la /var/lib/reeve/system; ps"} {
		result, err := g.Run(ctx, guestapi.Command{Arguments: []string{"sh", "-c", line}})
		if err != nil {
			return // It is off.
		}
		t.Logf("$ %s\n%s%s", line, result.Stdout, result.Stderr)
	}
}

// off switches a guest off in an orderly way.
func (g *guest) off(t *testing.T) {
	t.Helper()
	if err := g.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// run runs a program to its end, whichever it comes to.
func (g *guest) run(t *testing.T, stdin string, arguments ...string) guestapi.Result {
	t.Helper()
	result, err := g.Run(t.Context(), guestapi.Command{Arguments: arguments, Stdin: []byte(stdin), Timeout: patience})
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(arguments, " "), err)
	}
	return result
}

// must runs a program that must not fail, and returns what it wrote on its standard output.
func (g *guest) must(t *testing.T, arguments ...string) string {
	t.Helper()
	return g.mustWith(t, "", arguments...)
}

// mustWith is must, with something on the program's standard input.
func (g *guest) mustWith(t *testing.T, stdin string, arguments ...string) string {
	t.Helper()
	result := g.run(t, stdin, arguments...)
	if result.Code != 0 {
		t.Fatalf("%s: exit status %d %s\n%s%s", strings.Join(arguments, " "), result.Code, result.Signal, result.Stdout, result.Stderr)
	}
	return string(result.Stdout)
}

// sh runs a line of the shell that must not fail.
func (g *guest) sh(t *testing.T, line string) string {
	t.Helper()
	return g.must(t, "sh", "-c", line)
}

// start starts reeved, as the service of a machine does.
func (g *guest) start(t *testing.T, arguments ...string) {
	t.Helper()
	pid, err := g.Start(t.Context(), reevedLog, append([]string{machine.Programs + "/reeved"}, arguments...)...)
	if err != nil {
		t.Fatal(err)
	}
	g.reeved = pid
	g.startWatch(t)
}

// stop stops reeved and its roles, and returns how it ended.
func (g *guest) stop(t *testing.T) guestapi.Result {
	t.Helper()
	g.must(t, "kill", "-TERM", fmt.Sprint(g.reeved))
	return g.ended(t)
}

// ended waits until reeved has ended.
func (g *guest) ended(t *testing.T) guestapi.Result {
	t.Helper()
	result, err := g.Wait(t.Context(), g.reeved, patience)
	if err != nil {
		t.Fatal(err)
	}
	g.reeved = 0
	g.stopWatch(t)
	return result
}

// log returns what reeved has written in this boot.
func (g *guest) log(t *testing.T) string {
	t.Helper()
	content, err := g.ReadFile(t.Context(), reevedLog)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
