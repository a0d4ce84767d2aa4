package process_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/process"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) {
	if program := programs[os.Args[0]]; program != nil {
		program()
		return
	}
	leaktest.VerifyTestMain(m)
}

// programs are what the test's executable is under other names.
var programs = map[string]func(){
	"patient": func() {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("up", strings.Join(os.Args[1:], " "), strings.Join(os.Environ(), " "))
		<-asked
		fmt.Fprintln(os.Stderr, "W1125 03:58:59.123456       7 file.go:12] going")
	},
	"deaf": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("up")
		// A program whose only goroutine waits for a channel is ended by Go as one that is stuck.
		time.Sleep(time.Hour)
	},
	"crasher": func() {
		fmt.Fprintln(os.Stderr, "E1125 03:58:59.123456       7 file.go:12] it hurts")
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 100_000))
		os.Exit(3)
	},
	// It leaves a child that holds its output, the first time.
	"parent": func() {
		if _, err := os.Stat(os.Args[1]); err == nil {
			time.Sleep(time.Hour)
		}
		child := exec.Command("/bin/sleep", "1000")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		if err := os.WriteFile(os.Args[1], []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
			panic(err)
		}
	},
	// A role that starts a program, says which, and waits to be killed.
	"keeper": func() {
		process.Program{
			Executable: process.Self, Name: "deaf", Grace: time.Minute, Log: hclog.NewNullLogger(),
			See: func(now process.State) { _ = os.WriteFile(os.Args[1], []byte(strconv.Itoa(now.PID)), 0o600) },
		}.Run(context.Background())
	},
}

const patience = 2 * time.Minute

// run is a program that is kept running, and what came of it.
type run struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan struct{}
	log    *buffer

	mu     sync.Mutex
	states []process.State
	news   chan struct{}
}

func start(t *testing.T, name string, grace time.Duration, arguments ...string) *run {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{t: t, cancel: cancel, ended: make(chan struct{}), news: make(chan struct{}, 1), log: &buffer{}}
	log := hclog.New(&hclog.LoggerOptions{Output: r.log, Level: hclog.Debug})
	go func() {
		defer close(r.ended)
		process.Program{
			Executable: process.Self, Name: name, Arguments: arguments, Environment: []string{"ONLY=this"}, Grace: grace, Log: log, FirstRetry: time.Millisecond,
			See: func(now process.State) {
				r.mu.Lock()
				r.states = append(r.states, now)
				r.mu.Unlock()
				select {
				case r.news <- struct{}{}:
				default:
				}
			},
		}.Run(ctx)
	}()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *run) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case <-r.ended:
	case <-time.After(patience):
		r.t.Fatal("it does not end")
	}
}

// await waits for a state, and returns it.
func (r *run) await(accept func(process.State) bool) process.State {
	r.t.Helper()
	for timeout := time.After(patience); ; {
		r.mu.Lock()
		at := slices.IndexFunc(r.states, accept)
		var found process.State
		if at >= 0 {
			found = r.states[at]
		}
		all := fmt.Sprint(r.states)
		r.mu.Unlock()
		if at >= 0 {
			return found
		}
		select {
		case <-r.news:
		case <-timeout:
			r.t.Fatalf("that does not come: %s\n%s", all, r.log)
		}
	}
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// awaitLog waits until the log has a text.
func (r *run) awaitLog(text string) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(r.log.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("the log does not come to have %q:\n%s", text, r.log)
		}
	}
}

func TestEndsWhenAsked(t *testing.T) {
	r := start(t, "patient", patience, "--a=b", "c")
	r.await(func(now process.State) bool { return now.PID != 0 })
	r.awaitLog("[INFO]  up --a=b c ONLY=this GOGC=50\n")
	r.stop()
	r.awaitLog("[WARN]  going\n")
	if last := r.await(func(now process.State) bool { return now.Ended == "stopped" }); last.PID != 0 || last.Starts != 1 {
		t.Errorf("at the end: %+v", last)
	}
}

func TestKilledWhenDeaf(t *testing.T) {
	r := start(t, "deaf", time.Millisecond)
	pid := r.await(func(now process.State) bool { return now.PID != 0 }).PID
	r.awaitLog("up")
	r.stop()
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("it is there")
	}
}

func TestStartedAgain(t *testing.T) {
	r := start(t, "crasher", patience)
	if again := r.await(func(now process.State) bool { return now.Starts == 4 && now.PID == 0 }); !strings.Contains(again.Ended, "exit status 3") || again.Again.IsZero() {
		t.Errorf("it is %+v", again)
	}
	r.awaitLog("[ERROR] it hurts\n")
	for line := range strings.Lines(r.log.String()) {
		if len(line) > 10_000 {
			t.Errorf("a line of %d bytes is in the log", len(line))
		}
	}
}

// TestOutputHeld: a program is started again though a child of it keeps its output open.
func TestOutputHeld(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	t.Cleanup(func() {
		text, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(string(text)); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	start(t, "parent", patience, file).await(func(now process.State) bool { return now.Starts == 2 && now.PID != 0 })
}

func TestNoSuchProgram(t *testing.T) {
	seen := make(chan process.State, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		process.Program{Executable: "/nowhere", Name: "x", Log: hclog.NewNullLogger(), See: func(now process.State) { seen <- now }}.Run(ctx)
	}()
	if now := <-seen; now.PID != 0 || !strings.Contains(now.Ended, "/nowhere") {
		t.Errorf("it is %+v", now)
	}
	cancel()
	<-ended
}

// TestEndsWithItsRole: nothing is left of a role that is killed.
func TestEndsWithItsRole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	role := exec.Command(process.Self, file)
	role.Args[0] = "keeper"
	if err := role.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for deadline := time.Now().Add(patience); pid == 0; time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(file)
		if pid, _ = strconv.Atoi(string(text)); pid == 0 && time.Now().After(deadline) {
			t.Fatal("the role starts nothing")
		}
	}
	if err := role.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = role.Wait() // killed
	for deadline := time.Now().Add(patience); runs(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the program goes on without the role")
		}
	}
}

// runs reports whether a process runs: one that has ended may wait for its parent for long.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z")
}
