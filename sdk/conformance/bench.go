package conformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// bench is the testing.TB that roletest's host gets: the suite's run. It only has what a host calls.
type bench struct {
	testing.TB

	mu       sync.Mutex
	cleanups []func()
	problems []error
}

// hostError is the argument of Fatal. Fatal panics with it, because its caller must not continue.
type hostError struct{ text string }

func (e hostError) Error() string { return "the suite's own host: " + e.text }

// Helper implements testing.TB.
func (b *bench) Helper() {}

// Fatal implements testing.TB.
func (b *bench) Fatal(arguments ...any) { panic(hostError{fmt.Sprint(arguments...)}) }

// Fatalf implements testing.TB.
func (b *bench) Fatalf(format string, arguments ...any) {
	panic(hostError{fmt.Sprintf(format, arguments...)})
}

// Error implements testing.TB.
func (b *bench) Error(arguments ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, hostError{fmt.Sprint(arguments...)})
}

// Errorf implements testing.TB.
func (b *bench) Errorf(format string, arguments ...any) { b.Error(fmt.Sprintf(format, arguments...)) }

// Cleanup implements testing.TB.
func (b *bench) Cleanup(function func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, function)
}

// end runs the functions given to Cleanup, last first.
func (b *bench) end() error {
	b.mu.Lock()
	cleanups := b.cleanups
	b.cleanups = nil
	b.mu.Unlock()
	for _, cleanup := range slices.Backward(cleanups) {
		cleanup()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.problems...)
}
