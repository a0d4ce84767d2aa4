package rmtree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long the removal of one tree may take. A million files take some seconds on a tmpfs. Nothing that a role leaves is worth blocking a
// node longer.
const Patience = time.Minute

const (
	// maxShown is how many leftovers an error names, maxName how many bytes of each name.
	maxShown = 3
	maxName  = 64
	// risenPrefix is the prefix of directories that were moved up.
	risenPrefix = ".reeve-removed-"
	// risenTries is how many names are tried for one directory. An earlier removal may have left some.
	risenTries = 64
)

// Remove removes a file, or a directory with everything in it. It does nothing if path does not exist. Only the caller may be able to write to the
// directories above path; anybody may write to path and below. On failure everything removable is gone, and the error, which is of limited length,
// names some of the rest. It stops when the context ends, and after Patience.
func Remove(ctx context.Context, path string) error {
	path = filepath.Clean(path)
	parent, err := openTrusted(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer parent.close()
	if err := removeAt(ctx, parent, filepath.Base(path)); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// Empty removes everything in a directory like Remove, and keeps the directory. A missing directory is empty. It removes all it can, and takes at
// most Patience.
func Empty(ctx context.Context, path string) error {
	ctx, cancel := patient(ctx)
	defer cancel()
	directory, err := openTrusted(path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", path, err)
	}
	defer directory.close()
	var left problems
	err = directory.each(ctx, func(name string) {
		if err := removeAt(ctx, directory, name); err != nil {
			left.add(name, err)
		}
	})
	if err = errors.Join(err, left.err()); err != nil {
		return fmt.Errorf("empty %s: %w", path, err)
	}
	return nil
}

func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, Patience, fmt.Errorf("not done within %s", Patience))
}

// removeAt removes one entry of a trusted directory.
func removeAt(ctx context.Context, parent *directory, name string) error {
	ctx, cancel := patient(ctx)
	defer cancel()
	err := parent.unlink(name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	top, err := parent.open(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.close()
	tree := tree{top: top}
	for {
		before := tree.steps
		tree.left = problems{}
		err := tree.pass(ctx)
		// Whatever happened: if the directory is empty now, the goal is reached.
		last := parent.unlink(name)
		switch {
		case last == nil:
			return nil
		case err != nil:
			return err
		case tree.steps == before:
			if err := tree.left.err(); err != nil {
				return err
			}
			return last
		}
	}
}

// tree is a directory that is being emptied.
type tree struct {
	top *directory
	// steps counts removals and moves. A pass without a step cannot be improved.
	steps uint64
	// The directories numbered sunk to risen-1 were moved up and are still to be removed.
	risen, sunk uint64
	// left is what the present pass could not remove.
	left problems
}

// pass goes over the top's entries once, and over directories that come up meanwhile.
func (t *tree) pass(ctx context.Context) error {
	return t.top.each(ctx, func(name string) {
		t.sink(ctx, name)
		for t.sunk < t.risen && ctx.Err() == nil {
			name := risenName(t.sunk)
			t.sunk++
			t.count(name, t.dissolve(ctx, name))
		}
	})
}

// sink removes an entry of the top. If it is a directory, its non-empty subdirectories come up.
func (t *tree) sink(ctx context.Context, name string) {
	err := t.top.unlink(name)
	if errors.Is(err, unix.ENOTEMPTY) {
		err = t.dissolve(ctx, name)
	}
	t.count(name, err)
}

// dissolve removes a directory of the top that is not empty.
func (t *tree) dissolve(ctx context.Context, name string) error {
	if err := t.clear(ctx, name); err != nil && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if t.top.rmdir(name) == nil {
		return nil
	}
	return t.top.unlink(name) // it is another file by now, or the error says why
}

func risenName(number uint64) string { return fmt.Sprintf("%s%d", risenPrefix, number) }

// clear empties a directory of the top.
func (t *tree) clear(ctx context.Context, name string) error {
	child, err := t.top.open(name)
	if err != nil {
		return err
	}
	defer child.close()
	return child.each(ctx, func(name string) {
		err := child.unlink(name)
		if errors.Is(err, unix.ENOTEMPTY) {
			err = t.raise(child, name)
		}
		t.count(name, err)
	})
}

// raise moves a directory to the top, where pass finds it.
func (t *tree) raise(from *directory, name string) error {
	var err error
	opened := false
	for range risenTries {
		// The rename may replace what has the new name, since that is to be removed too.
		err = unix.Renameat(from.fd, name, t.top.fd, risenName(t.risen))
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			t.risen++
			return nil
		case errors.Is(err, unix.EACCES) && !opened:
			// A directory that its owner cannot write to cannot change its parent; open fixes the mode.
			opened = true
			sub, err := from.open(name)
			if err != nil {
				return err
			}
			sub.close()
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR):
			t.risen++ // the name is taken
		default:
			return err
		}
	}
	return err
}

func (t *tree) count(name string, err error) {
	if err == nil {
		t.steps++
	} else {
		t.left.add(name, err)
	}
}

// problems collects what could not be removed.
type problems struct {
	shown []error
	more  int
}

func (p *problems) add(name string, err error) {
	if len(p.shown) == maxShown {
		p.more++
		return
	}
	if len(name) > maxName {
		name = name[:maxName] + "…"
	}
	p.shown = append(p.shown, fmt.Errorf("%q: %w", name, err))
}

func (p *problems) err() error {
	if len(p.shown) == 0 {
		return nil
	}
	return &leftError{causes: p.shown, more: p.more}
}

// leftError names some of what is left.
type leftError struct {
	causes []error
	more   int
}

func (e *leftError) Error() string {
	texts := make([]string, 0, len(e.causes)+1)
	for _, cause := range e.causes {
		texts = append(texts, cause.Error())
	}
	if e.more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", e.more))
	}
	return strings.Join(texts, "; ")
}

func (e *leftError) Unwrap() []error { return e.causes }
