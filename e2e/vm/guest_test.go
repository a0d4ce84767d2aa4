package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/vm/internal/guestapi"
	"github.com/reeveproject/reeve/e2e/vm/internal/machine"
)

const (
	// patience is how long anything in a guest may take that takes seconds where nothing else runs.
	patience = 6 * time.Minute
	// look is the pause between two looks into a guest: each starts a program there.
	look = 250 * time.Millisecond
	// reevedLog is the log of reeved in the guest: in memory, so that it is nobody's secret on a disk.
	reevedLog = "/tmp/reeved.log"
)

// guest is a machine that is on, for one test.
type guest struct {
	*machine.Guest
	// reeved is the process of the core; 0: it was not started.
	reeved int
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
	t.Logf("the machine answers after %s", on.Up.Round(10*time.Millisecond))
	return g
}

// show writes down what there is to know of a guest that failed.
func (g *guest) show(t *testing.T) {
	t.Helper()
	t.Logf("the machine's console, at the end:\n%s", g.Console())
	// The test's context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, line := range []string{"tail -c 20000 " + reevedLog, "dmesg | tail -n 20", "cat /proc/mounts; df; ls -la /var/lib/reeve/system; ps"} {
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

// status is what `reeve status -o json` promises, as far as these tests read it.
type status struct {
	Node struct {
		ID        string `json:"id"`
		Isolation string `json:"isolation"`
	} `json:"node"`
	Cluster struct {
		ID string `json:"id"`
	} `json:"cluster"`
	Membership struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	} `json:"membership"`
	Storage struct {
		State      string   `json:"state"`
		Kind       string   `json:"kind"`
		Encrypted  bool     `json:"encrypted"`
		Sealer     string   `json:"sealer"`
		Step       string   `json:"step"`
		Problem    string   `json:"problem"`
		Weaknesses []string `json:"weaknesses"`
		Sources    []source `json:"sources"`
	} `json:"storage"`
	Roles []struct {
		Role  string `json:"role"`
		State string `json:"state"`
		PID   int    `json:"pid"`
	} `json:"roles"`
	// text is the whole document, for messages.
	text string
}

// source is one of the CUK.
type source struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// source returns the source of a name.
func (s status) source(name string) source {
	for _, source := range s.Storage.Sources {
		if source.Name == name {
			return source
		}
	}
	return source{}
}

// home says whether the node is a member in contact with its cluster, and runs its roles.
func (s status) home() bool {
	ready := 0
	for _, role := range s.Roles {
		if role.State == "Ready" {
			ready++
		}
	}
	return s.Membership.State == "Home" && ready == len(roles)
}

// errNoStatus says that reeved does not answer.
var errNoStatus = errors.New("no status")

// askStatus returns the node's status.
func (g *guest) askStatus(ctx context.Context) (s status, err error) {
	result, err := g.Run(ctx, guestapi.Command{Arguments: []string{"reeve", "status", "-o", "json"}, Timeout: patience})
	if err != nil {
		return s, err
	}
	s.text = string(result.Stdout)
	if result.Code != 0 {
		return s, fmt.Errorf("%w: exit status %d: %s", errNoStatus, result.Code, strings.TrimSpace(string(result.Stderr)))
	}
	if err := json.Unmarshal(result.Stdout, &s); err != nil {
		return s, fmt.Errorf("reeve status: %w: %s", err, result.Stdout)
	}
	return s, nil
}

// await waits until the node's status is as wanted, and returns it.
func (g *guest) await(t *testing.T, what string, wanted func(status) bool) status {
	t.Helper()
	var last status
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen, ok := eventually.Try(ctx, patience, look, func() (bool, string) {
		s, err := g.askStatus(ctx)
		if err != nil {
			return false, err.Error()
		}
		last = s
		return wanted(s), s.text
	})
	if !ok {
		t.Fatalf("not within %s: %s; last seen: %s", patience, what, seen)
	}
	return last
}

// awaitHome waits until the node is Home with its roles, and says how long it took.
func (g *guest) awaitHome(t *testing.T, what string) status {
	t.Helper()
	begin := time.Now()
	s := g.await(t, "Home with all roles", status.home)
	t.Logf("%s: Home after %s, %s after the machine was switched on", what, time.Since(begin).Round(10*time.Millisecond), time.Since(g.Begin).Round(10*time.Millisecond))
	return s
}
