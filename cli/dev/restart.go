package dev

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
)

// Leave ends the reeved that runs in a dev directory, and leaves its roles running for the next one. It returns the process that has ended; 0: none ran.
//
// With dryRun it changes nothing, and returns the process that would end.
func Leave(ctx context.Context, path string, dryRun bool) (pid int, err error) {
	node, err := holdNode(ctx, path)
	switch {
	case errors.Is(err, target.ErrNotRunning):
		return 0, nil
	case err != nil:
		return 0, holdFault(err, path)
	}
	defer node.close()
	signal := unix.SIGUSR1
	if dryRun {
		signal = 0 // which is only checked
	}
	if err := node.signal(signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return 0, stopFault(err, path)
	}
	if dryRun {
		return node.pid, nil
	}
	if err := node.wait(ctx); err != nil {
		return 0, fault.New(fault.Failed, fmt.Sprintf("reeved (process %d) was told to leave its roles, and has not ended in time", node.pid),
			"Run the command again to wait longer.")
	}
	return node.pid, nil
}
