package devcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/build"
)

// ending is a test that comes to its end: it runs its cleanups as the testing package does, and keeps what they say.
type ending struct {
	testing.TB
	cleanups []func()
	said     []string
	// told is called when it has said something for the first time.
	told func()
}

func (*ending) Helper()                  {}
func (e *ending) Failed() bool           { return len(e.said) > 0 }
func (e *ending) Cleanup(cleanup func()) { e.cleanups = append(e.cleanups, cleanup) }
func (*ending) Log(...any)               {}
func (*ending) Logf(string, ...any)      {}

func (e *ending) Error(all ...any) {
	e.said = append(e.said, fmt.Sprint(all...))
	if len(e.said) == 1 {
		e.told()
	}
}

func (e *ending) Errorf(format string, all ...any) { e.Error(fmt.Sprintf(format, all...)) }

func (e *ending) Fatal(all ...any) {
	e.Error(all...)
	runtime.Goexit()
}

func (e *ending) Fatalf(format string, all ...any) { e.Fatal(fmt.Sprintf(format, all...)) }

func (e *ending) end() {
	for len(e.cleanups) > 0 {
		last := e.cleanups[len(e.cleanups)-1]
		e.cleanups = e.cleanups[:len(e.cleanups)-1]
		done := make(chan struct{})
		go func() {
			defer close(done)
			last()
		}()
		<-done
	}
}

// A node that cannot be stopped in time is said, and all that comes after it is done.
func TestTheEndGoesOn(t *testing.T) {
	programs := &build.Programs{Directory: t.TempDir()}
	// What stops the node ends once it was said that it does not.
	fifo := filepath.Join(programs.Directory, "fifo")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.WriteFile(programs.Reeve(), []byte("#!/bin/sh\nread -r _ <"+fifo+"\n:\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	e := &ending{TB: t, told: func() {
		if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
			t.Error(err)
		}
	}}
	c := New(e, Options{Programs: programs, Base: t.TempDir()})
	c.patience = 50 * time.Millisecond
	if err := errors.Join(os.Mkdir(c.Directory, 0o755), os.WriteFile(filepath.Join(c.Directory, "reeved.yaml"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	e.end()
	if said := strings.Join(e.said, "\n"); len(e.said) != 1 || !strings.Contains(said, "has not ended within 50ms") {
		t.Errorf("it says %q", said)
	}
	if left, err := os.ReadDir(c.Home); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
