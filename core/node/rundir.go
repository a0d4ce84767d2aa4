package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/filewatch"
)

const (
	// runSettles is the time between a change in run/ and the look at it: whoever removes a directory removes one file after the other.
	runSettles = 200 * time.Millisecond
	// runAgain is the time between two tries to make what is missing in run/.
	runAgain = time.Second
)

// keepRun makes what the node needs in run/ again when somebody removes it: the directory, its lock and the node's socket. The roles' directories are keepRoles'.
func (n *node) keepRun(ctx context.Context) error {
	followRun(ctx, n.storage.Run, func() error {
		lock, err := n.storage.MendRun()
		if err != nil {
			n.log.Error("the run directory is gone and cannot be made; trying again", "error", err)
			return err
		}
		socket, err := n.socket.Mend()
		if err != nil {
			n.log.Error("the node's socket is gone and cannot be made; trying again", "error", err)
			return err
		}
		if lock || socket {
			n.log.Warn("somebody removed files of the run directory; they are made again", "run", n.storage.Run, "lock", lock, "socket", socket)
		}
		return nil
	})
	return nil
}

// keepRoles restarts the roles if somebody removed the directories in which their sockets are. A role that runs sees only the directories that were there
// when it started, so it would never reach another role again.
func (w *whole) keepRoles(ctx context.Context) {
	roots := make(map[string]*os.File)
	defer func() {
		for _, root := range roots {
			_ = root.Close()
		}
	}()
	followRun(ctx, w.node.storage.Run, func() error {
		paths, err := w.plugins.launcher.MakeRunDirectories()
		if errors.Is(err, fs.ErrNotExist) {
			return err // keepRun is about to make their parent
		}
		if err != nil {
			w.log.Error("the directories of roles are gone and cannot be made; trying again", "error", err)
			return err
		}
		lost := false
		for _, path := range paths {
			// Held open, so its inode number is not used again.
			now, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			if former := roots[path]; former != nil {
				lost = lost || !same(former, now)
				_ = former.Close()
			}
			roots[path] = now
		}
		if !lost {
			return nil
		}
		w.log.Warn("somebody removed the directories of the roles' sockets; the roles are restarted", "run", w.node.storage.Run)
		instances, _ := w.reconciler.Instances().Get()
		for _, instance := range instances {
			if instance.Remit == nil {
				continue
			}
			role := instance.Remit.Role
			if err := w.reconciler.Replace(ctx, role, "because somebody removed the directory of its socket"); err != nil && ctx.Err() == nil {
				w.log.Error("cannot restart a role without its socket", "role", role, "error", err)
			}
		}
		return nil
	})
}

func same(a, b *os.File) bool {
	first, errA := a.Stat()
	second, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(first, second)
}

// followRun calls look at once, after each change in the directory, and again after an error, until the context ends.
func followRun(ctx context.Context, run string, look func() error) {
	var watcher filewatch.Watcher
	defer watcher.Wait()
	for ctx.Err() == nil {
		// First the watch, so that no change is missed.
		watch, err := watcher.Directory(run)
		failed := look()
		if err != nil {
			pause(ctx, runSettles)
			continue
		}
		var again <-chan time.Time
		if failed != nil {
			again = time.After(runAgain)
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-watch.Changed:
			pause(ctx, runSettles)
		}
		watch.Stop()
	}
}

func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
