package plugin

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/core/proc"
)

const (
	// termGrace is how long processes have from SIGTERM to SIGKILL at least. They have been asked over RPC before, or cannot be.
	termGrace = 5 * time.Second
	// killGrace is how long the kernel has to end what was killed: it is at once but for what hangs in a system call.
	killGrace = 10 * time.Second
)

// atOnce gives no process any time.
func atOnce(int) time.Duration { return 0 }

// sweep ends every process that matches, and their new children. It sends SIGTERM, waits for each process as long as grace says, and then kills all that are left. If every
// grace is 0, or the context ends, it kills at once. It returns when no matching process is left.
func sweep(ctx context.Context, what string, grace func(pid int) time.Duration, match func(pid int) bool) error {
	found, err := proc.Find(match)
	if err == nil && slices.ContainsFunc(found, func(h *proc.Handle) bool { return grace(h.PID) > 0 }) {
		terminate(ctx, grace, found)
	}
	// From here on it goes on after the context's end: a process that is left costs more than a short wait.
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	// What was found first is killed even if it matches no longer: that may have hung on another process, which has ended by now.
	for err == nil && len(found) > 0 {
		var left []int
		for _, h := range found {
			if h.Signal(syscall.SIGKILL) != nil || h.Wait(deadline) != nil {
				left = append(left, h.PID)
			}
		}
		proc.CloseAll(found)
		if len(left) > 0 {
			slices.Sort(left)
			return &SurvivorsError{What: what, PIDs: left}
		}
		found, err = proc.Find(match)
	}
	proc.CloseAll(found)
	if err != nil {
		return fmt.Errorf("end processes of %s: %w", what, err)
	}
	return nil
}

// terminate asks processes to end, and returns when they have or the time of those that have not is up.
func terminate(ctx context.Context, grace func(pid int) time.Duration, found []*proc.Handle) {
	for _, h := range found {
		_ = h.Signal(syscall.SIGTERM) // what this cannot end, SIGKILL reports
	}
	asked := time.Now()
	for _, h := range found {
		waiting, cancel := context.WithDeadline(ctx, asked.Add(grace(h.PID)))
		_ = h.Wait(waiting)
		cancel()
	}
}
