// Package cgroup bounds what the processes of an instance use, and finds all of them again.
//
// It owns the node's control groups: one group for each instance, below one of the node, in every hierarchy of the machine that can be used (v2, v1, or
// both at once). It watches nothing and publishes nothing.
//
// The node's group is made below the group that the core itself is in. Cgroup v2 gives controllers only to groups below one that holds no processes, and
// the core moves neither itself nor others: so there the node's group is made beside the core's own group if whoever manages the groups has delegated
// the one above both (systemd: Delegate=yes with DelegateSubgroup=), and below the core's own if that is the root of all.
package cgroup
