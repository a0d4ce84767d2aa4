package wallclock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/sdk/event"
)

// Room watches the machine's clock.
type Room struct {
	set event.Value[int]
}

// New returns a room that watches nothing before Run.
func New() *Room { return &Room{} }

// Set is how often the clock was set since Run began; it holds nothing before the first time. A clock that is merely slewed, as a time service does once it
// is nearly right, is not set.
func (r *Room) Set() *event.Value[int] { return &r.set }

// Run follows the clock until the context ends. It fails where the kernel does not tell.
func (r *Room) Run(ctx context.Context) error {
	// The kernel ends the wait of such a timer when the clock jumps. It is to expire in the year 2242, near the end of what the kernel can count.
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("wallclock: the kernel does not tell when the clock is set: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	defer func() { _ = timer.Close() }() // there is nothing in it to lose
	never := &unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 33}}
	arm := func() error {
		if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, never, nil); err != nil && !errors.Is(err, unix.ECANCELED) {
			return fmt.Errorf("wallclock: the kernel does not tell when the clock is set: %w", err)
		}
		return nil
	}
	if err := arm(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = timer.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for expirations := make([]byte, 8); ; {
		switch _, err := timer.Read(expirations); {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.ECANCELED):
			return fmt.Errorf("wallclock: %w", err)
		}
		// Armed again first: what is set from now on is told once more, rather than not at all.
		if err := arm(); err != nil {
			return err
		}
		r.set.Update(func(n int) int { return n + 1 })
	}
}
