package plugin

import (
	"context"
	"fmt"
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
	if grace > 0 {
		if err := terminate(ctx, grace, match); err != nil {
			return fmt.Errorf("end processes of %s: %w", what, err)
		}
	}
	// From here on it goes on after the context's end: a process that is left costs more than a short wait.
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	for {
		found, err := find(match)
		var left []int
		for _, h := range found {
			if h.signal(syscall.SIGKILL) != nil || h.wait(deadline) != nil {
				left = append(left, h.pid)
			}
		}
		closeAll(found)
		switch {
		case err != nil:
			return fmt.Errorf("end processes of %s: %w", what, err)
		case len(left) > 0:
			return &SurvivorsError{What: what, PIDs: left}
		case len(found) == 0:
			return nil
		}
	}
}

// terminate asks what matches to end, and returns when it has or the time is up.
func terminate(ctx context.Context, grace time.Duration, match func(pid int) bool) error {
	found, err := find(match)
	defer closeAll(found)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, h := range found {
		_ = h.signal(syscall.SIGTERM) // what this cannot end, SIGKILL reports
	}
	for _, h := range found {
		if h.wait(ctx) != nil {
			return nil
		}
	}
	return nil
}

func closeAll(handles []*handle) {
	for _, h := range handles {
		h.close()
	}
}
