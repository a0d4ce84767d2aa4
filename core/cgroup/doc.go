// Package cgroup bounds what the processes of an instance use, and finds all of them again.
//
// It owns the node's control groups: one group for each instance, below one of the node, in every hierarchy of the machine that can be used (v2, v1, or
// both at once). It watches nothing and publishes nothing.
package cgroup
