package node

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/filewatch"
	"github.com/reeveproject/reeve/core/roles"
)

const (
	// runSettles is the time between a change in run/ and the look at it: whoever removes a directory removes one file after the other.
	runSettles = 200 * time.Millisecond
	// runAgain is the time between two tries to make what is missing in run/.
	runAgain = time.Second
)

// keepRun makes what the node needs in run/ again when somebody removes it: the directory, its lock and the node's socket. The roles' directories are keepRoles'.
func (n *node) keepRun(ctx context.Context) error {
	problems := &changes{log: n.log}
	followRun(ctx, n.storage.Run, func() error {
		lock, err := n.storage.MendRun()
		if err != nil {
			return problems.tell("the run directory is gone and cannot be made; trying again", err)
		}
		socket, err := n.socket.Mend()
		if err != nil {
			return problems.tell("the node's socket is gone and cannot be made; trying again", err)
		}
		problems.none()
		if lock || socket {
			n.log.Warn("somebody removed files of the run directory; they are made again", "run", n.storage.Run, "lock", lock, "socket", socket)
		}
		return nil
	})
	return nil
}

// keepRoles restarts the roles if somebody removed the directories in which their sockets are.
func (w *whole) keepRoles(ctx context.Context) {
	sockets := &roleSockets{
		log:      w.log,
		problems: changes{log: w.log},
		directories: func() ([]string, error) {
			// Nothing is made in a directory that keepRun has not checked.
			if held, err := w.node.storage.HoldsRun(); err != nil {
				return nil, err
			} else if !held {
				return nil, fs.ErrNotExist
			}
			return w.plugins.launcher.MakeRunDirectories()
		},
		running: func() (names []string) {
			instances, _ := w.reconciler.Instances().Get()
			for _, instance := range instances {
				if instance.Remit != nil {
					names = append(names, instance.Remit.Role)
				}
			}
			return names
		},
		restart: func(role string) error {
			return w.reconciler.Replace(ctx, role, "because somebody removed the directory of its socket")
		},
		roots: make(map[string]*os.File),
		cut:   make(map[string]bool),
	}
	defer sockets.close()
	followRun(ctx, w.node.storage.Run, sockets.look)
}

// roleSockets finds the roles that somebody cut off from the others. A role that runs sees only the directories that were there when it started, so it
// would never reach another role again.
type roleSockets struct {
	log      hclog.Logger
	problems changes
	// directories makes the directories that are missing, and returns all of them.
	directories func() ([]string, error)
	// running returns the roles that have a process.
	running func() []string
	restart func(role string) error
	// roots are the directories as they were last seen. They are held open, so the kernel does not use their inode numbers again.
	roots map[string]*os.File
	// cut are the roles that are still to be restarted.
	cut map[string]bool
}

func (s *roleSockets) close() {
	for _, root := range s.roots {
		_ = root.Close()
	}
}

// look makes what is missing, and restarts the roles that do not see it. After an error the next look goes on where this one ended.
func (s *roleSockets) look() error {
	paths, err := s.directories()
	if errors.Is(err, fs.ErrNotExist) {
		return err // keepRun is about to make their parent
	}
	if err != nil {
		return s.problems.tell("the directories of roles are gone and cannot be made; trying again", err)
	}
	for _, path := range paths {
		now, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		former := s.roots[path]
		s.roots[path] = now
		if former == nil {
			continue
		}
		if !same(former, now) {
			s.log.Warn("somebody removed a directory of the roles' sockets; the roles are restarted", "directory", path)
			for _, role := range s.running() {
				s.cut[role] = true
			}
		}
		_ = former.Close()
	}
	var problems []error
	for _, role := range slices.Sorted(maps.Keys(s.cut)) {
		err := s.restart(role)
		if errors.Is(err, roles.ErrStopping) || errors.Is(err, context.Canceled) {
			return err
		}
		var notDesired *roles.NotDesiredError
		if err == nil || errors.As(err, &notDesired) {
			delete(s.cut, role)
			continue
		}
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return s.problems.tell("cannot restart roles without their sockets; trying again", err)
	}
	s.problems.none()
	return nil
}

// changes logs what fails again and again only when it is something else than last time.
type changes struct {
	log  hclog.Logger
	last string
}

// tell returns the error.
func (c *changes) tell(message string, err error) error {
	if text := message + err.Error(); text != c.last {
		c.last = text
		c.log.Error(message, "error", err)
	}
	return err
}

func (c *changes) none() { c.last = "" }

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
			wait := runSettles
			if failed != nil {
				wait = runAgain
			}
			pause(ctx, wait)
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
