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

// Add moves a process into the group, with all of its threads.
func (g *Group) Add(pid int) error {
	for _, m := range g.members {
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

// Processes are the processes in the group.
func (g *Group) Processes() ([]int, error) {
	var pids []int
	for _, m := range g.members {
		text, err := os.ReadFile(m.file("cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			continue // the group is gone, and nothing can be in it
		}
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0: of a PID namespace that is not seen here
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

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
		pids, err := g.Processes()
		if err != nil {
			return err
		}
		var more bool
		for _, pid := range pids {
			if killed[pid] {
				continue
			}
			more, killed[pid] = true, true
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("cgroup: kill process %d of %s: %w", pid, g.name, err)
			}
		}
		if !more {
			return nil
		}
	}
	return fmt.Errorf("cgroup: the processes of %s fork faster than they can be killed", g.name)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Remove removes the group, which must be empty: processes that were killed are waited for, 5 s at most.
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
