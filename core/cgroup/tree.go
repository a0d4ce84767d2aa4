package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/proto/mountinfo"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Limits are the limits of a group; 0 means none.
type Limits struct {
	MemoryBytes int64
	Processes   int64
	// CPUWeight is the share of the CPUs when they are short, as in cgroup v2: 1 to 10000.
	CPUWeight int64
}

// The controllers that are used, and the names of what is missing without them.
const (
	memory    = "memory"
	processes = "pids"
	cpu       = "cpu"
)

var controllers = []string{cpu, memory, processes}

var missingWithout = map[string]string{memory: "cgroup-memory", processes: "cgroup-processes", cpu: "cgroup-cpu"}

// removeWithin is how long killed processes may take to end.
const removeWithin = 5 * time.Second

// Tree is a node's control groups. A nil Tree is that of a machine without usable control groups.
type Tree struct {
	// bases are the node's groups, at most one per hierarchy.
	bases []base
	// lacks are the controllers that cannot be used, with the reason.
	lacks map[string]string
	make  func(directory string) error
}

// base is the node's group in one hierarchy.
type base struct {
	directory   string
	controllers []string
	unified     bool
}

// Open opens the groups of a node by a name, such as its ID. It keeps existing groups, which may belong to running instances. Missing returns what
// does not work here; Open fails only if something fails that ought to work.
func Open(node string) (*Tree, error) {
	if err := valid(node); err != nil {
		return nil, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the kernel has no control groups
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	mounts, err := mountinfo.Own()
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return open(node, hierarchies(string(groups), mounts), makeGroup)
}

func open(node string, all []hierarchy, make func(string) error) (*Tree, error) {
	t := &Tree{lacks: map[string]string{}, make: make}
	for _, controller := range controllers {
		t.lacks[controller] = "no control group hierarchy that is visible to the core has the controller " + controller
	}
	for _, h := range all {
		b, reason, err := t.base(h, node)
		if err != nil {
			return nil, err
		}
		usable := b != nil
		if usable {
			t.bases = append(t.bases, *b)
		}
		for _, controller := range h.controllers {
			if usable && slices.Contains(b.controllers, controller) {
				delete(t.lacks, controller)
			} else if _, lacks := t.lacks[controller]; lacks {
				t.lacks[controller] = reason
			}
		}
	}
	return t, nil
}

// base makes the node's group in a hierarchy; nil and the reason if that is impossible.
func (t *Tree) base(h hierarchy, node string) (b *base, reason string, err error) {
	parent := h.directory
	if h.unified && len(h.controllers) > 0 && !isRoot(parent) {
		// The core's own group holds the core, so it cannot give controllers to groups below it.
		if above := filepath.Dir(parent); delegated(above) {
			parent = above
		} else if !delegated(parent) {
			return nil, "the core's group (" + parent + ") is not delegated to it: set Delegate=yes and DelegateSubgroup= in the systemd unit", nil
		}
	}
	directory := filepath.Join(parent, node)
	if err := t.make(directory); err != nil {
		if denied(err) {
			return nil, fmt.Sprintf("the core may not make groups in %s (%v)", parent, syscallError(err)), nil
		}
		return nil, "", fmt.Errorf("cgroup: make the node's group: %w", err)
	}
	b = &base{directory: directory, unified: h.unified, controllers: h.controllers}
	if !h.unified || len(h.controllers) == 0 {
		return b, "", nil
	}
	b.controllers = nil
	for _, controller := range h.controllers {
		err := write(filepath.Join(parent, "cgroup.subtree_control"), "+"+controller)
		if err == nil {
			err = write(filepath.Join(directory, "cgroup.subtree_control"), "+"+controller)
		}
		switch {
		case err == nil:
			b.controllers = append(b.controllers, controller)
		case errors.Is(err, syscall.EBUSY):
			reason = fmt.Sprintf("the group %s holds processes and cannot give controllers to groups below it: put the core one level deeper with "+
				"Delegate=yes and DelegateSubgroup= in the systemd unit", parent)
		default:
			reason = fmt.Sprintf("cannot pass on the controllers of %s (%v)", parent, syscallError(err))
		}
	}
	return b, reason, nil
}

// Missing returns what this machine or user cannot do with control groups: "cgroup-memory", "cgroup-processes", "cgroup-cpu", sorted.
func (t *Tree) Missing() []*clusterv1.Missing {
	var missing []*clusterv1.Missing
	for _, controller := range controllers {
		reason := "no control groups can be used"
		if t != nil {
			var lacks bool
			if reason, lacks = t.lacks[controller]; !lacks {
				continue
			}
		}
		missing = append(missing, &clusterv1.Missing{Name: missingWithout[controller], Reason: reason})
	}
	slices.SortFunc(missing, func(a, b *clusterv1.Missing) int { return strings.Compare(a.Name, b.Name) })
	return missing
}

// Make makes or reuses the group of an instance, and sets its limits. It skips limits without a controller.
func (t *Tree) Make(name string, limits Limits) (*Group, error) {
	if err := valid(name); err != nil {
		return nil, err
	}
	g := t.group(name)
	for _, m := range g.members {
		if err := t.make(m.directory); err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup: make the group of %s: %w", name, err), g.Remove())
		}
		if err := m.limit(limits); err != nil {
			return nil, fmt.Errorf("cgroup: set the limits of %s: %w", name, err)
		}
	}
	return g, nil
}

func (t *Tree) group(name string) *Group {
	g := &Group{name: name}
	if t == nil {
		return g
	}
	for _, b := range t.bases {
		g.members = append(g.members, member{base: b, directory: filepath.Join(b.directory, name)})
	}
	return g
}

// Sweep kills what is in the groups that keep rejects, and removes the groups.
func (t *Tree) Sweep(keep func(name string) bool) error {
	if t == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, b := range t.bases {
		entries, err := os.ReadDir(b.directory)
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		for _, entry := range entries {
			if entry.IsDir() && !keep(entry.Name()) {
				names[entry.Name()] = true
			}
		}
	}
	var failures []error
	for name := range names {
		g := t.group(name)
		err := g.Kill()
		if err == nil {
			err = g.Remove()
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// Close removes the node's groups unless they hold groups of instances. The next core makes them again.
func (t *Tree) Close() error {
	if t == nil {
		return nil
	}
	var failures []error
	for _, b := range t.bases {
		err := syscall.Rmdir(b.directory)
		if err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, fmt.Errorf("cgroup: remove %s: %w", b.directory, err))
		}
	}
	return errors.Join(failures...)
}

func valid(name string) error {
	if name == "" || len(name) > 200 || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\n\x00") || strings.HasPrefix(name, "cgroup.") {
		return fmt.Errorf("cgroup: %q is not a valid group name", name)
	}
	return nil
}

// makeGroup makes a directory. The kernel fills it.
func makeGroup(directory string) error {
	if err := os.Mkdir(directory, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func denied(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOSPC) ||
		errors.Is(err, syscall.EAGAIN)
}

func syscallError(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// write writes to a file of a group and does not create one.
func write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
