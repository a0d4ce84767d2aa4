package wallclock_test

import (
	"context"
	"testing"

	"github.com/reeveproject/reeve/core/wallclock"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// What it tells is the soak's: the clock is the whole machine's.
func TestItEnds(t *testing.T) { run(t, wallclock.New())() }

// run runs the room until the returned function is called, which sees that it ends.
func run(t *testing.T, room *wallclock.Room) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- room.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
