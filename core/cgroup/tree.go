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

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Limits bounds a group. 0: no bound.
type Limits struct {
	MemoryBytes int64
	Processes   int64
	// CPUWeight is the share of the CPUs when they are short, as cgroup v2 counts it: 1 to 10000.
	CPUWeight int64
}

// The controllers that are used, and what is missing without them.
const (
	memory    = "memory"
	processes = "pids"
	cpu       = "cpu"
)

var controllers = []string{cpu, memory, processes}

var missingWithout = map[string]string{memory: "cgroup-memory", processes: "cgroup-processes", cpu: "cgroup-cpu"}

// removeWithin is how long the processes of a group that was killed may take to go.
const removeWithin = 5 * time.Second

// Tree is the control groups of a node. A nil Tree is one of a machine on which nothing can be done with control groups.
type Tree struct {
	// bases are the node's groups, at most one in each hierarchy.
	bases []base
	// lacks are the controllers that cannot be used, and why.
	lacks map[string]string
	make  func(directory string) error
}

// base is the node's group in one hierarchy.
type base struct {
	directory   string
	controllers []string
	unified     bool
}

// Open takes the groups of a node, which is known by a name of its own, such as its ID. Groups that are there stay as they are: they may belong to
// instances that run. What of Limits (and of killing by group) cannot be done here is in Missing; Open fails only on what ought to work and does not.
func Open(node string) (*Tree, error) {
	if err := valid(node); err != nil {
		return nil, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without control groups
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return open(node, hierarchies(string(groups), string(mounts)), makeGroup)
}

func open(node string, all []hierarchy, make func(string) error) (*Tree, error) {
	t := &Tree{lacks: map[string]string{}, make: make}
	for _, controller := range controllers {
		t.lacks[controller] = "no hierarchy of control groups that the core can see has the controller " + controller
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

// base makes the node's group in a hierarchy; nil and a reason if that cannot be done.
func (t *Tree) base(h hierarchy, node string) (b *base, reason string, err error) {
	parent := h.directory
	if h.unified && len(h.controllers) > 0 && !isRoot(parent) {
		// Its own group holds the core, and so can give no controllers to groups below it.
		if above := filepath.Dir(parent); delegated(above) {
			parent = above
		} else if !delegated(parent) {
			return nil, "the group of the core (" + parent + ") was not delegated to it: systemd does that with Delegate=yes and DelegateSubgroup=", nil
		}
	}
	directory := filepath.Join(parent, node)
	if err := t.make(directory); err != nil {
		if denied(err) {
			return nil, fmt.Sprintf("the core may not make groups in %s (%v)", parent, syscallError(err)), nil
		}
		return nil, "", fmt.Errorf("cgroup: the group of the node: %w", err)
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
			reason = fmt.Sprintf("the group %s holds processes itself, and so can give no controllers to groups below it: systemd puts the core one deeper with "+
				"Delegate=yes and DelegateSubgroup=", parent)
		default:
			reason = fmt.Sprintf("the controllers of %s cannot be passed on (%v)", parent, syscallError(err))
		}
	}
	return b, reason, nil
}

// Missing is what this machine or user cannot do with control groups: "cgroup-memory", "cgroup-processes", "cgroup-cpu", sorted.
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

// Make makes the group of an instance, or takes the one that is there, and sets its limits. A bound that cannot be set here is left out.
func (t *Tree) Make(name string, limits Limits) (*Group, error) {
	if err := valid(name); err != nil {
		return nil, err
	}
	g := t.group(name)
	for _, m := range g.members {
		if err := t.make(m.directory); err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup: the group of %s: %w", name, err), g.Remove())
		}
		if err := m.limit(limits); err != nil {
			return nil, fmt.Errorf("cgroup: the limits of %s: %w", name, err)
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

// Sweep removes the groups that are not to be kept, and kills what is in them.
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

// Close removes the groups of the node, as far as none of an instance is left in them. The next core makes them again.
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
		return fmt.Errorf("cgroup: %q is no name for a group", name)
	}
	return nil
}

// makeGroup makes a directory; the kernel puts the files in it.
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

// write writes to a file of a group. It makes none.
func write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
