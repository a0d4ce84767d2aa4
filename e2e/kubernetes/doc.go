// Package kubernetes tests the plugin kubernetes on whole nodes: the control plane and kubectl as an operator uses it, nodes that run pods, faults of both, and a part of the tests that Kubernetes has of
// itself.
//
// It is a package of its own, since the plugin's executable takes long to link and nothing else needs it.
package kubernetes
