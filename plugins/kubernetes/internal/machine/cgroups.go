package machine

import (
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

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// cgroupsName is the group at the root of every hierarchy, in which each node has one.
const cgroupsName = "reeve-kubernetes"

// unifiedControllers are those of cgroup v2 that are passed on to pods where the kernel has them: the kubelet needs all of them except io, which limits the disk use of containers.
var unifiedControllers = []string{"cpu", "cpuset", "memory", "pids", "hugetlb", "io"}

// Cgroups is the control groups of a node's pods: one group at the same path in every hierarchy of the machine (v1, v2, or both), in which the kubelet and containerd make theirs. They outlive the
// processes of the role, and so do the pods in them.
type Cgroups struct {
	node        string
	hierarchies []hierarchy
}

// hierarchy is one tree of groups.
type hierarchy struct {
	// mount is its root.
	mount string
	// options are those of v1: its controllers, or its name.
	options []string
	// unified says that it is cgroup v2.
	unified bool
}

func (h hierarchy) has(controller string) bool { return slices.Contains(h.options, controller) }

// OpenCgroups finds the hierarchies of this machine. It makes nothing.
func OpenCgroups(nodeID string) (*Cgroups, error) {
	if nodeID == "" || strings.HasPrefix(nodeID, ".") || strings.HasPrefix(nodeID, "cgroup.") || strings.ContainsAny(nodeID, "/\n\x00") {
		return nil, fmt.Errorf("machine: %q is no name for a control group", nodeID)
	}
	all, err := hierarchies()
	if err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("machine: no control groups are mounted: mount them at /sys/fs/cgroup, as systemd does")
	}
	return &Cgroups{node: nodeID, hierarchies: all}, nil
}

// hierarchies are the machine's, each once.
func hierarchies() ([]hierarchy, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("the mounts of this machine: %w", err)
	}
	var all []hierarchy
	seen := make(map[[2]int]bool)
	for _, mount := range mounts {
		// What a container has of the same hierarchy is mounted elsewhere, later.
		device := [2]int{mount.Major, mount.Minor}
		if seen[device] || strings.HasSuffix(mount.Mountpoint, "//deleted") {
			continue
		}
		seen[device] = true
		h := hierarchy{mount: mount.Mountpoint, unified: mount.FSType == "cgroup2"}
		if !h.unified {
			h.options = strings.Split(mount.VFSOptions, ",")
		}
		all = append(all, h)
	}
	return all, nil
}

// Path is the group's below the root of every hierarchy, as the kubelet's cgroupRoot takes it.
func (c *Cgroups) Path() string { return "/" + cgroupsName + "/" + c.node }

// Unified reports whether the machine has cgroup v2 alone.
func (c *Cgroups) Unified() bool {
	return !slices.ContainsFunc(c.hierarchies, func(h hierarchy) bool { return !h.unified })
}

func (c *Cgroups) directory(h hierarchy) string { return filepath.Join(h.mount, c.Path()) }

// Make makes the group in every hierarchy, with all that is in its way to be of use there. One that is there stays as it is.
func (c *Cgroups) Make() error {
	for _, h := range c.hierarchies {
		// Another node may remove the common group until this node's group is in it: so that comes before anything is written.
		if err := makeGroup(c.directory(h)); err != nil {
			return fmt.Errorf("machine: make the control group %s: %w", c.directory(h), err)
		}
		levels := []string{h.mount, filepath.Join(h.mount, cgroupsName), c.directory(h)}
		for i, level := range levels {
			var err error
			switch {
			case h.unified:
				err = passOn(level)
			case h.has("cpuset") && i > 0:
				err = inherit(levels[i-1], level)
			}
			if err != nil {
				return fmt.Errorf("machine: %w", err)
			}
		}
	}
	return nil
}

// makeGroup makes a node's group, and the common one above it if it is not there. Another node may remove the common one in the moment between, when it was the last.
func makeGroup(directory string) error {
	for range 10 {
		err := os.Mkdir(directory, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return nil
		}
		above := filepath.Dir(directory)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Mkdir(above, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return fs.ErrNotExist
}

// passOn enables the controllers of a cgroup v2 group for its children. At the root they stay enabled, because other programs may use them by the time this node stops.
func passOn(directory string) error {
	has, err := os.ReadFile(filepath.Join(directory, "cgroup.controllers"))
	if err != nil {
		return err
	}
	given, err := os.ReadFile(filepath.Join(directory, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, controller := range unifiedControllers {
		if !hasField(has, controller) || hasField(given, controller) {
			continue
		}
		if err := writeGroup(filepath.Join(directory, "cgroup.subtree_control"), "+"+controller); err != nil {
			return fmt.Errorf("the control group %s cannot give the controller %s to those below it: %w", directory, controller, err)
		}
	}
	return nil
}

func hasField(text []byte, field string) bool {
	return slices.ContainsFunc(bytes.Fields(text), func(f []byte) bool { return string(f) == field })
}

// inherit gives a group of v1's cpuset the CPUs and the memory of the one above, without which it can hold no process.
func inherit(above, directory string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		has, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(has)) > 0 {
			continue
		}
		value, err := os.ReadFile(filepath.Join(above, name))
		if err != nil {
			return err
		}
		if err := writeGroup(filepath.Join(directory, name), string(bytes.TrimSpace(value))); err != nil {
			return err
		}
	}
	return nil
}

// Processes are those in the group and below it, but for those in groups directly below it that are named.
func (c *Cgroups) Processes(but ...string) ([]int, error) {
	var pids []int
	for _, h := range c.hierarchies {
		groups, err := groups(c.directory(h))
		if err != nil {
			return nil, fmt.Errorf("machine: %w", err)
		}
		for _, group := range groups {
			below, _, _ := strings.Cut(strings.TrimPrefix(group, c.directory(h)+"/"), "/")
			if slices.Contains(but, below) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
			if removed(err) || errors.Is(err, syscall.EOPNOTSUPP) { // a group of threads of v2, whose processes are in the one above
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("machine: %w", err)
			}
			for _, field := range strings.Fields(string(text)) {
				// 0 is of a PID namespace that is not seen here.
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// groups are a group and those below it, the deepest first.
func groups(directory string) (found []string, err error) {
	err = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case removed(err):
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

// removed reports whether an error means that a group is not there any more.
func removed(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// Kill kills all processes in the group and below it, those that are born meanwhile and those that are frozen too, and returns when they have ended.
func (c *Cgroups) Kill(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := c.Processes()
		if err != nil || len(pids) == 0 {
			return err
		}
		if slices.Contains(pids, os.Getpid()) {
			return fmt.Errorf("machine: this process is in the control group %s, which it is to kill", c.Path())
		}
		if err := c.killOnce(); err != nil {
			return fmt.Errorf("machine: kill what is in the control group %s: %w", c.Path(), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("machine: the processes %v in the control group %s were killed, and have not ended: %w", pids, c.Path(), context.Cause(ctx))
		case <-time.After(pause): // what v1 tells of an empty group goes to a program that is the machine's
		}
	}
}

// killOnce kills what is there now. Who is frozen meanwhile cannot fork.
func (c *Cgroups) killOnce() error {
	for _, h := range c.hierarchies {
		if h.unified {
			// Not in kernels before 5.14.
			if err := writeGroup(filepath.Join(c.directory(h), "cgroup.kill"), "1"); err != nil && !removed(err) {
				return err
			}
		}
		if h.has("freezer") {
			if err := writeGroup(filepath.Join(c.directory(h), "freezer.state"), "FROZEN"); err != nil && !removed(err) {
				return err
			}
		}
	}
	return errors.Join(c.signal(syscall.SIGKILL), c.thaw())
}

// thaw lets everything in the group run, so that it can end: pods may have been frozen by somebody else.
func (c *Cgroups) thaw() error {
	var problems []error
	for _, h := range c.hierarchies {
		if !h.has("freezer") {
			continue
		}
		all, err := groups(c.directory(h))
		problems = append(problems, err)
		for _, group := range all {
			if err := writeGroup(filepath.Join(group, "freezer.state"), "THAWED"); err != nil && !removed(err) {
				problems = append(problems, err)
			}
		}
	}
	return errors.Join(problems...)
}

// holdAtOnce bounds the descriptors that a signal takes.
const holdAtOnce = 1024

// Terminate asks the processes that Processes returns to end (SIGTERM), and does not wait until they have.
func (c *Cgroups) Terminate(but ...string) error {
	if err := c.signal(syscall.SIGTERM, but...); err != nil {
		return fmt.Errorf("machine: ask what is in the control group %s to end: %w", c.Path(), err)
	}
	return nil
}

// signal sends a signal to the processes of the group. A number that is read is soon another process's: each process is held first, and is sent it if it is then still one of the group's.
func (c *Cgroups) signal(signal syscall.Signal, but ...string) error {
	pids, err := c.Processes(but...)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(pids, holdAtOnce) {
		if err := c.signalSome(signal, some, but); err != nil {
			return err
		}
	}
	return nil
}

// signalSome sends a signal to those of some processes that are in the group.
func (c *Cgroups) signalSome(signal syscall.Signal, some []int, but []string) error {
	held := make(map[int]int)
	defer func() {
		for _, descriptor := range held {
			_ = unix.Close(descriptor)
		}
	}()
	for _, pid := range some {
		descriptor, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			held[pid] = descriptor
		} else if !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EINVAL) { // EINVAL: no process, but one of its threads
			return fmt.Errorf("hold process %d: %w", pid, err)
		}
	}
	pids, err := c.Processes(but...)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if descriptor, ok := held[pid]; ok {
			if err := unix.PidfdSendSignal(descriptor, signal, nil, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("send process %d a signal: %w", pid, err)
			}
		}
	}
	return nil
}

// Remove removes the group with those below it, from which all processes must have gone (Kill); and the one above, if it was the last node's.
func (c *Cgroups) Remove(ctx context.Context) error {
	for _, h := range c.hierarchies {
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			all, err := groups(c.directory(h))
			if err != nil {
				return fmt.Errorf("machine: %w", err)
			}
			busy := ""
			for _, group := range all {
				if err := syscall.Rmdir(group); errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) {
					busy = group
				} else if err != nil && !removed(err) {
					return fmt.Errorf("machine: remove the control group %s: %w", group, err)
				}
			}
			if busy == "" {
				break
			}
			select {
			case <-ctx.Done():
				pids, _ := c.Processes() // for people
				return fmt.Errorf("machine: remove the control group %s: it is in use, and the processes %v are still in it: %w", busy, pids, context.Cause(ctx))
			case <-time.After(pause): // the kernel lets go of a group some time after its last process
			}
		}
		above := filepath.Join(h.mount, cgroupsName)
		if err := syscall.Rmdir(above); err != nil && !removed(err) && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("machine: remove the control group %s: %w", above, err)
		}
	}
	return nil
}

// writeGroup writes to a file of a group. It makes none.
func writeGroup(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
