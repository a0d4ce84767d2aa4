package process_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/process"
)

// TestGroup keeps two programs, of which one is started anew.
func TestGroup(t *testing.T) {
	var mu sync.Mutex
	shown := make(map[string]string)
	group := &process.Group{Show: func(name, state string) {
		mu.Lock()
		defer mu.Unlock()
		shown[name] = state
	}}
	if err := group.Check("patient"); !errors.Is(err, process.ErrNotRunning) {
		t.Errorf("before it was started: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan process.State, 16)
	var running sync.WaitGroup
	for _, name := range []string{"patient", "deaf"} {
		running.Go(func() {
			group.Keep(ctx, process.Program{Executable: process.Self, Name: name, Grace: time.Second, Log: hclog.NewNullLogger(), See: func(now process.State) {
				if name == "patient" && now.PID != 0 {
					started <- now
				}
			}})
		})
	}
	first := await(t, started)
	for group.Check("deaf") != nil {
		if !group.Wait(ctx, patience) {
			t.Fatal("it does not run")
		}
	}
	for _, name := range []string{"patient", "nobody"} {
		select {
		case <-group.Anew(name):
		case <-time.After(patience):
			t.Fatalf("%s has not ended", name)
		}
	}
	if again := await(t, started); again.PID == first.PID {
		t.Errorf("process %d was not started anew", first.PID)
	}
	if err := group.Check("deaf"); err != nil {
		t.Errorf("another program has noticed: %v", err)
	}
	cancel()
	running.Wait()
	if group.Wait(ctx, patience) {
		t.Error("Wait does not see that the context is done")
	}
	mu.Lock()
	defer mu.Unlock()
	for name, state := range shown {
		if state != "" {
			t.Errorf("%s is shown as %q at the end", name, state)
		}
	}
}

func await(t *testing.T, started <-chan process.State) process.State {
	t.Helper()
	select {
	case now := <-started:
		return now
	case <-time.After(patience):
		t.Fatal("it does not start")
		return process.State{}
	}
}

func TestStateInWords(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, state := range map[string]process.State{
		"running": {PID: 7, Starts: 1},
		"running, started 2 times; before that it ended with exit status 1":        {PID: 7, Starts: 2, Ended: "it ended with exit status 1"},
		"it ended with exit status 1; it is started again at 2026-01-02T03:04:05Z": {Ended: "it ended with exit status 1", Again: at},
		"stopped": {Ended: "stopped"},
	} {
		if got := state.String(); got != want {
			t.Errorf("%+v is %q, want %q", state, got, want)
		}
	}
}
