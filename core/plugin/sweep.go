package plugin

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

const (
	// termGrace is how long processes have from SIGTERM to SIGKILL. They have been asked over RPC before, or cannot be.
	termGrace = 5 * time.Second
	// killGrace is how long the kernel has to end what was killed: it is at once but for what hangs in a system call.
	killGrace = 10 * time.Second
)

// sweep ends every process that matches, and those that they bring forth meanwhile: SIGTERM first and SIGKILL after grace, or SIGKILL at
// once if grace is 0 or the context ends. It returns when no matching process is left.
func sweep(ctx context.Context, what string, grace time.Duration, match func(pid int) bool) error {
	found, err := find(match)
	if err == nil && grace > 0 {
		terminate(ctx, grace, found)
	}
	// From here on it goes on after the context's end: a process that is left costs more than a short wait.
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	// What was found first is killed even if it matches no longer: that may have hung on another process, which has ended by now.
	for err == nil && len(found) > 0 {
		var left []int
		for _, h := range found {
			if h.signal(syscall.SIGKILL) != nil || h.wait(deadline) != nil {
				left = append(left, h.pid)
			}
		}
		closeAll(found)
		if len(left) > 0 {
			slices.Sort(left)
			return &SurvivorsError{What: what, PIDs: left}
		}
		found, err = find(match)
	}
	closeAll(found)
	if err != nil {
		return fmt.Errorf("end processes of %s: %w", what, err)
	}
	return nil
}

// terminate asks processes to end, and returns when they have or the time is up.
func terminate(ctx context.Context, grace time.Duration, found []*handle) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, h := range found {
		_ = h.signal(syscall.SIGTERM) // what this cannot end, SIGKILL reports
	}
	for _, h := range found {
		if h.wait(ctx) != nil {
			return
		}
	}
}

func closeAll(handles []*handle) {
	for _, h := range handles {
		h.close()
	}
}
