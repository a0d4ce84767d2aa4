package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// unmountWithin is how long mounts that are in use are waited for.
const unmountWithin = 5 * time.Second

// DetachedError says that mounts were in use, and were detached: they are in no directory any more, and the kernel unmounts them when nobody uses them.
type DetachedError struct{ Paths []string }

// Error implements error.
func (e *DetachedError) Error() string {
	return fmt.Sprintf("these mounts are in use, and were only detached (they go when nobody uses them; `fuser -m` finds who does): %s", strings.Join(e.Paths, ", "))
}

// Unmount unmounts everything that is mounted below some directories, the deepest first; what the directories themselves are mounts of stays. Those that are in use are tried again for a while, as
// long as the context lasts, and are then detached: the error is a *DetachedError if that is all that went wrong.
func Unmount(ctx context.Context, below ...string) error {
	var roots []string
	for _, directory := range below {
		if !filepath.IsAbs(directory) || filepath.Clean(directory) == "/" {
			return fmt.Errorf("machine: unmount what is below %q: it is no directory of this program's", directory)
		}
		// The kernel lists paths without links.
		resolved, err := filepath.EvalSymlinks(directory)
		if err != nil {
			resolved = filepath.Clean(directory)
		}
		roots = append(roots, resolved)
	}
	ctx, cancel := context.WithTimeout(ctx, unmountWithin)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		mounts, err := mountsBelow(roots)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		if len(mounts) == 0 {
			return nil
		}
		unmounted, busy, err := unmountAll(mounts, 0)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		if len(unmounted) > 0 {
			continue // what was beneath or behind them may go now
		}
		if !busy {
			return hidden(roots, mounts)
		}
		select {
		case <-ctx.Done():
			return detach(roots)
		case <-time.After(pause): // the kernel tells nobody that a mount is in use no more
		}
	}
}

// hidden says which mounts are left that have no path: something else is mounted on the directory itself, or on one above. Those that have gone by themselves meanwhile are none.
func hidden(roots, before []string) error {
	mounts, err := mountsBelow(roots)
	if err != nil {
		return fmt.Errorf("machine: %w", err)
	}
	mounts = slices.DeleteFunc(mounts, func(path string) bool { return !slices.Contains(before, path) })
	if len(mounts) == 0 {
		return nil
	}
	return fmt.Errorf("machine: these mounts cannot be unmounted, since others hide them, which are not below the directory: %s", strings.Join(mounts, ", "))
}

// mountsBelow lists mount points, each as often as something is mounted there, the deepest first.
func mountsBelow(roots []string) ([]string, error) {
	found, err := mountinfo.GetMounts(func(info *mountinfo.Info) (skip, stop bool) {
		// What was mounted in a directory that is gone has no path by which it can be unmounted.
		return strings.HasSuffix(info.Mountpoint, "//deleted") || !slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(info.Mountpoint, root+"/") }), false
	})
	if err != nil {
		return nil, fmt.Errorf("the mounts of this machine: %w", err)
	}
	slices.SortStableFunc(found, func(a, b *mountinfo.Info) int {
		return cmp.Compare(strings.Count(b.Mountpoint, "/"), strings.Count(a.Mountpoint, "/"))
	})
	var paths []string
	for _, info := range found {
		paths = append(paths, info.Mountpoint)
	}
	return paths, nil
}

// unmountAll tries each once, and returns which have been unmounted and whether any is in use.
func unmountAll(paths []string, flags int) (unmounted []string, busy bool, err error) {
	for _, path := range paths {
		switch err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|flags); {
		case err == nil:
			unmounted = append(unmounted, path)
		case errors.Is(err, unix.EBUSY):
			busy = true
		case !gone(err):
			return unmounted, busy, fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return unmounted, busy, nil
}

// gone says that nothing is mounted there, or nothing any more: it went with another mount from which it was propagated, or another mount hides it.
func gone(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) }

func detach(roots []string) error {
	detached := &DetachedError{}
	for {
		paths, err := mountsBelow(roots)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		unmounted, _, err := unmountAll(paths, unix.MNT_DETACH)
		if err != nil {
			return fmt.Errorf("machine: %w", err)
		}
		detached.Paths = append(detached.Paths, unmounted...)
		if len(unmounted) > 0 {
			continue
		}
		if err := hidden(roots, paths); err != nil {
			return err
		}
		break
	}
	if len(detached.Paths) == 0 {
		return nil
	}
	slices.Sort(detached.Paths)
	detached.Paths = slices.Compact(detached.Paths)
	return detached
}
