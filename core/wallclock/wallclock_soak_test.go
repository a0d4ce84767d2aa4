//go:build soak

package wallclock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/wallclock"
)

// These tests are about the clock of the whole machine: the first one sets it, and the second one fails if anybody else does.

// Setting the clock to what it says is a jump like any other to the kernel, and no matter to the machine.
func TestTheClockIsSet(t *testing.T) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); errors.Is(err, unix.EPERM) {
		t.Skip("cannot run: this user may not set the machine's clock")
	} else if err != nil {
		t.Fatal(err)
	}
	room := wallclock.New()
	stop := run(t, room)
	defer stop()
	patience, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for n := range 3 {
		// Again until it is seen: the room may not have begun to look.
		for seen := -1; seen <= n; {
			if err := errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME, &now), unix.ClockSettime(unix.CLOCK_REALTIME, &now)); err != nil {
				t.Fatal(err)
			}
			once, cancel := context.WithTimeout(patience, 100*time.Millisecond)
			if got, err := room.Set().Wait(once, func(set int) bool { return set > n }); err == nil {
				seen = got
			} else if patience.Err() != nil {
				t.Fatalf("the clock was set and nothing was told: %v", err)
			}
			cancel()
		}
	}
}

func TestNothingIsToldOfAClockThatRuns(t *testing.T) {
	room := wallclock.New()
	stop := run(t, room)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if set, err := room.Set().Wait(short, func(int) bool { return true }); err == nil {
		t.Errorf("the clock was set %d times", set)
	}
	stop()
}
