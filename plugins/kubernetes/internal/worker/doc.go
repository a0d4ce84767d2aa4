// Package worker is the role kubernetes-worker: pods run on its node.
//
// It owns containerd, kubelet and kube-proxy of the node, their credentials and configuration (in the runtime directory of the instance), the pod network (package podnet) and what all of them leave
// on the machine (package machine). It watches the cluster's directory, for the API servers, for what the cluster is configured with and for the pods of other nodes; and the Node of its own in Kubernetes. It
// publishes the ranges of its pods.
//
// Pods do not end with the role's process: containers and what holds them are in control groups of their own, and what containerd has to find again is in a directory that outlives the instance. They end
// when the role is taken from the node, and when the node stops.
package worker
