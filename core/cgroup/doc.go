// Package cgroup limits what the processes of an instance use, and finds all of them again.
//
// It owns the node's control groups: a group of the node, with a group for each instance below it, in every usable hierarchy of the machine (v2, v1,
// or both at once). It watches and publishes nothing.
//
// The node's group is below the core's own group. Cgroup v2 gives controllers only to children of a group without processes, and the core moves
// neither itself nor others. So there the node's group is beside the core's own, if the manager of the groups has delegated the parent (systemd:
// Delegate=yes with DelegateSubgroup=), or below the core's own if that is the root group.
package cgroup
