// Package controller is the role kubernetes-controller: the control plane of Kubernetes on one node.
//
// The role's process starts kube-apiserver, kube-controller-manager and kube-scheduler, which are its own executable, keeps each of them running by itself (package process), and is Ready while
// all three are. The API server keeps its registry under the role's own ConsensusUser, by the Unix socket that the node opens for this instance; the authorities of Kubernetes
// are another role's, kubernetes-pki, which it asks for certificates by its SVID (credentials.go). Keys are in the role's runtime directory, which is in memory, and never leave it.
//
// When the API server is up, the role makes what is to be in Kubernetes: permissions of operators (permissions.go), and CoreDNS (coredns.go).
//
// Nodes of Kubernetes whose worker is no more are deleted (nodes.go).
//
// The package owns the programs and their files. It watches the node's addresses and the cluster's directory, and publishes the endpoint "kubernetes-api", the state of each program, and how the cluster is
// configured, for workers.
package controller
