package dev

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/target"
)

// ownerName is a link in a run directory to the dev directory whose it is.
const ownerName = "of"

// nameOwner links a run directory to its dev directory.
func nameOwner(run, state string) error {
	link := filepath.Join(run, ownerName)
	if owner, err := os.Readlink(link); err == nil && owner == state {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(state, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// collectRuns removes the run directories of dev directories that are gone, unless something of the node still runs. What cannot be removed stays.
func collectRuns(runs string) {
	entries, err := os.ReadDir(runs)
	if err != nil {
		return
	}
	for _, entry := range entries {
		run := filepath.Join(runs, entry.Name())
		owner, err := os.Readlink(filepath.Join(run, ownerName))
		if err != nil {
			continue
		}
		if _, err := os.Lstat(filepath.Join(owner, parametersName)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if lock, err := os.OpenFile(filepath.Join(run, "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0); err == nil {
			free := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
			_ = lock.Close()
			if !free {
				continue
			}
		}
		if !recordedRun(run) {
			_ = os.RemoveAll(run)
		}
	}
}

// recordedRun reports whether a process runs that the records of a run directory name.
func recordedRun(run string) bool { return len(target.Left(run)) > 0 }
