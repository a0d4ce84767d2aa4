package cgroup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is the control group of one instance.
type Group struct {
	name    string
	members []member
}

// member is the group in one hierarchy.
type member struct {
	base
	directory string
}

func (m member) file(name string) string { return filepath.Join(m.directory, name) }

func (m member) has(controller string) bool { return slices.Contains(m.controllers, controller) }

// Enter moves the calling thread into the group in the hierarchies in which a thread can be moved by itself (v1), so that the processes which it starts are
// born there: to move another process costs milliseconds in each, since all of the machine's forks are held up. The thread must be of use for nothing else
// afterwards, and end with that, which the main thread of a process cannot do: it is refused. Complete moves the child into the group in the other hierarchies.
func (g *Group) Enter() error {
	if unix.Gettid() == unix.Getpid() {
		return fmt.Errorf("cgroup: into the group of %s: the main thread would never leave it", g.name)
	}
	for _, m := range g.members {
		if m.unified {
			continue
		}
		if err := write(m.file("tasks"), "0"); err != nil {
			return fmt.Errorf("cgroup: into the group of %s: %w", g.name, err)
		}
	}
	return nil
}

// Complete moves a process into the group whose parent was in it by Enter.
func (g *Group) Complete(pid int) error { return g.add(pid, func(m member) bool { return m.unified }) }

// Add moves a process into the group, with all of its threads.
func (g *Group) Add(pid int) error { return g.add(pid, func(member) bool { return true }) }

func (g *Group) add(pid int, to func(member) bool) error {
	for _, m := range g.members {
		if !to(m) {
			continue
		}
		if err := write(m.file("cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("cgroup: process %d into the group of %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// Paths are the directories of the group, one in each hierarchy: for people.
func (g *Group) Paths() []string {
	var paths []string
	for _, m := range g.members {
		paths = append(paths, m.directory)
	}
	slices.Sort(paths)
	return paths
}

// OutOfMemory is how many processes of the group the kernel ended since they used more memory than the group may.
func (g *Group) OutOfMemory() (uint64, error) {
	for _, m := range g.members {
		if !m.has(memory) {
			continue
		}
		name := "memory.oom_control"
		if m.unified {
			name = "memory.events"
		}
		text, err := os.ReadFile(m.file(name))
		if err != nil {
			return 0, fmt.Errorf("cgroup: %w", err)
		}
		return counter(text, "oom_kill")
	}
	return 0, nil
}

// counter reads one of the lines "name number"; 0 if there is none, as on old kernels.
func counter(text []byte, name string) (uint64, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			number, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("cgroup: %s: %w", name, err)
			}
			return number, nil
		}
	}
	return 0, lines.Err()
}

// Processes are the processes in the group, and in what was made below it.
func (g *Group) Processes() ([]int, error) {
	var pids []int
	for _, m := range g.members {
		directories, err := m.directories()
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		for _, directory := range directories {
			text, err := os.ReadFile(filepath.Join(directory, "cgroup.procs"))
			if gone(err) {
				continue // and nothing can be in it
			}
			if err != nil {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			for _, field := range strings.Fields(string(text)) {
				// 0 is of a PID namespace that is not seen here. A thread of the core that is in the group (Enter) does not make the core one of its processes.
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 && pid != os.Getpid() {
					pids = append(pids, pid)
				}
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// directories are the group's own and those that are below it, the deepest first: a privileged role is root, and may make groups for its own children.
func (m member) directories() (found []string, err error) {
	err = filepath.WalkDir(m.directory, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case gone(err):
			return nil
		case err != nil:
			return err
		case entry.IsDir():
			found = append(found, path)
		}
		return nil
	})
	slices.Reverse(found)
	return found, err
}

// gone reports whether an error means that a group is not there any more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// Kill kills every process in the group, those that are born meanwhile too. It does not wait until they have ended.
func (g *Group) Kill() error {
	for _, m := range g.members {
		if !m.unified {
			continue
		}
		if err := write(m.file("cgroup.kill"), "1"); err == nil || errors.Is(err, fs.ErrNotExist) && !exists(m.directory) {
			return nil // every member has the same processes
		}
	}
	// An older kernel: who cannot fork is killed soon. The limit is set again when the group is made again.
	for _, m := range g.members {
		if m.has(processes) {
			if err := write(m.file("pids.max"), "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cgroup: keep the group of %s from growing: %w", g.name, err)
			}
		}
	}
	// Where forks cannot be stopped it may take some rounds. Who has been killed once is dying.
	killed := make(map[int]bool)
	for range 100 {
		more, err := g.killListed(g.Processes, killed)
		if err != nil || !more {
			return err
		}
	}
	return fmt.Errorf("cgroup: the processes of %s fork faster than they can be killed", g.name)
}

// killListed kills the processes of the group that have not been killed, and reports whether there were any. A number that is read is soon another
// process's: each process is held first, and is killed if it is then still one of the group's.
func (g *Group) killListed(list func() ([]int, error), killed map[int]bool) (more bool, err error) {
	pids, err := list()
	if err != nil {
		return false, err
	}
	held := make(map[int]int)
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		if killed[pid] || len(held) == holdAtOnce {
			continue
		}
		more = true
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			held[pid] = fd
		case !errors.Is(err, syscall.ESRCH):
			return false, fmt.Errorf("cgroup: hold process %d of %s: %w", pid, g.name, err)
		}
	}
	if len(held) == 0 {
		return more, nil
	}
	if pids, err = list(); err != nil {
		return false, err
	}
	for _, pid := range pids {
		fd, ok := held[pid]
		if !ok {
			continue
		}
		switch err := unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0); {
		case err == nil:
			killed[pid] = true
		case !errors.Is(err, syscall.ESRCH):
			return false, fmt.Errorf("cgroup: kill process %d of %s: %w", pid, g.name, err)
		}
	}
	return more, nil
}

// holdAtOnce bounds the descriptors that killing takes.
const holdAtOnce = 128

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Remove removes the group with those below it, which must be empty: processes that were killed are waited for, 5 s at most.
func (g *Group) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	for _, m := range g.members {
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			err := syscall.Rmdir(m.directory)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, syscall.EBUSY) {
				return fmt.Errorf("cgroup: remove %s: %w", m.directory, err)
			}
			if m.removeBelow() {
				continue
			}
			select {
			case <-ctx.Done():
				pids, _ := g.Processes()
				return fmt.Errorf("cgroup: remove %s: %w: the processes %v are still in it", m.directory, err, pids)
			case <-time.After(pause): // the kernel tells of it in v2 only, and not of all that keeps a group
			}
		}
	}
	return nil
}

// removeBelow removes what is below the group as far as it is empty, and reports whether it removed anything.
func (m member) removeBelow() (removed bool) {
	below, _ := m.directories() // what cannot be read is still there when the group is removed
	for _, directory := range below {
		if directory != m.directory && syscall.Rmdir(directory) == nil {
			removed = true
		}
	}
	return removed
}
