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

// Enter moves the calling thread into the group in v1 hierarchies, where a thread can move alone, so that the processes that it starts are born
// there. Moving another process would cost milliseconds in each hierarchy, because it blocks all forks of the machine. The thread must do nothing
// else and end afterwards; the main thread cannot end and is refused. Complete moves the child in the other hierarchies.
func (g *Group) Enter() error {
	if unix.Gettid() == unix.Getpid() {
		return fmt.Errorf("cgroup: enter the group of %s: the main thread would never leave it", g.name)
	}
	for _, m := range g.members {
		if m.unified {
			continue
		}
		if err := write(m.file("tasks"), "0"); err != nil {
			return fmt.Errorf("cgroup: enter the group of %s: %w", g.name, err)
		}
	}
	return nil
}

// Complete adds a process whose parent thread called Enter.
func (g *Group) Complete(pid int) error { return g.add(pid, func(m member) bool { return m.unified }) }

// Add moves a process with all of its threads into the group.
func (g *Group) Add(pid int) error { return g.add(pid, func(member) bool { return true }) }

func (g *Group) add(pid int, to func(member) bool) error {
	for _, m := range g.members {
		if !to(m) {
			continue
		}
		if err := write(m.file("cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("cgroup: move process %d into the group of %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// Paths returns the group's directory in each hierarchy, for people.
func (g *Group) Paths() []string {
	var paths []string
	for _, m := range g.members {
		paths = append(paths, m.directory)
	}
	slices.Sort(paths)
	return paths
}

// OutOfMemory returns how many processes of the group the kernel killed because the group exceeded its memory limit.
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

// counter reads a line "name number"; 0 if there is none, as on old kernels.
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

// Processes returns the processes in the group and below it.
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
				continue // so nothing is in it
			}
			if err != nil {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			for _, field := range strings.Fields(string(text)) {
				// 0 is a process of a PID namespace that is not visible here. A thread of the core in the group (Enter) does not make the core one of
				// its processes.
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 && pid != os.Getpid() {
					pids = append(pids, pid)
				}
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// directories returns the group's directory and those below it, deepest first: a privileged role is root and may make groups for its own children.
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

// gone reports whether a group does not exist any more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// Kill kills every process in the group, including those that start meanwhile. It does not wait for their end.
func (g *Group) Kill() error {
	for _, m := range g.members {
		if !m.unified {
			continue
		}
		if err := write(m.file("cgroup.kill"), "1"); err == nil || errors.Is(err, fs.ErrNotExist) && !exists(m.directory) {
			return nil // all members have the same processes
		}
	}
	// An older kernel: processes that cannot fork are killed soon. The limit is set again when the group is made again.
	for _, m := range g.members {
		if m.has(processes) {
			if err := write(m.file("pids.max"), "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cgroup: stop the group of %s from growing: %w", g.name, err)
			}
		}
	}
	// Where forks cannot be stopped it may take some rounds.
	killed := make(map[int]bool)
	for range 100 {
		more, err := g.killListed(g.Processes, killed)
		if err != nil || !more {
			return err
		}
	}
	return fmt.Errorf("cgroup: the processes of %s fork faster than they can be killed", g.name)
}

// killListed kills the group's processes that were not killed yet, and reports whether there were any. A process ID may be reused, so each process is
// opened first, and killed only if it is then still in the group.
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
			return false, fmt.Errorf("cgroup: open process %d of %s: %w", pid, g.name, err)
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

// holdAtOnce limits the descriptors that killListed opens.
const holdAtOnce = 128

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Remove removes the group and those below it. It waits up to 5 s for killed processes; others make it fail.
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
			case <-time.After(pause): // only v2 has a notification, and not for everything that keeps a group
			}
		}
	}
	return nil
}

// removeBelow removes empty groups below this one, and reports whether it removed any.
func (m member) removeBelow() (removed bool) {
	below, _ := m.directories() // unreadable ones make the removal fail later
	for _, directory := range below {
		if directory != m.directory && syscall.Rmdir(directory) == nil {
			removed = true
		}
	}
	return removed
}
