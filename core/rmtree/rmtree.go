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

// Patience is how long the removal of one tree may take. A million files take some seconds on a tmpfs; nothing that a role may leave behind
// is worth holding up a node for longer.
const Patience = time.Minute

const (
	// maxShown is how many of the things that could not be removed an error names, and maxName how many bytes of each name.
	maxShown = 3
	maxName  = 64
	// risenPrefix begins the names under which directories are moved up.
	risenPrefix = ".reeve-removed-"
	// risenTries is how many names are tried for one directory. A tree that was left halfway holds some already.
	risenTries = 64
)

// Remove removes a file, or a directory with everything in it. What is not there is no error. The directories above path must belong to
// the caller alone, path and what is below it to anybody. An error names some of what could not be removed; it is of bounded length,
// and everything else has been removed. Removal stops when the context ends, and after Patience.
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

// Empty removes everything in a directory as Remove would, and leaves the directory. What cannot be removed does not keep the rest. A directory that
// is not there is empty. All of it takes Patience at most.
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

// removeAt removes one entry of a directory that is the caller's.
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
		// Whatever happened, an empty directory is what was wanted.
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
	// steps counts what was removed and moved up: without a step there is nothing more to be done.
	steps uint64
	// The directories with the numbers from sunk to risen were moved up, and are still to be looked at.
	risen, sunk uint64
	// left is what the present pass could not do.
	left problems
}

// pass goes over the entries of the top once, and over what comes up meanwhile.
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

// sink removes an entry of the top. If it is a directory, directories in it come up that are not empty.
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
	return t.top.unlink(name) // it is something else by now, or says why not
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

// raise moves a directory from a directory of the top to the top, where pass finds it.
func (t *tree) raise(from *directory, name string) error {
	var err error
	opened := false
	for range risenTries {
		// What has the new name is to be removed as well, so that it may be replaced.
		err = unix.Renameat(from.fd, name, t.top.fd, risenName(t.risen))
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			t.risen++
			return nil
		case errors.Is(err, unix.EACCES) && !opened:
			// A directory that its owner may not write in does not change its parent; opening it puts that right.
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

// problems is what could not be removed, as far as an error tells of it.
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
