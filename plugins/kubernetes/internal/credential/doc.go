// Package credential is how a control plane and a worker come by what they prove themselves with.
//
// It owns the making of keys, the forms of the files that programs of Kubernetes read, and when credentials are asked for again. It watches the revision of the trust of Kubernetes, as kubernetes-pki tells
// it, and publishes with which of them the node works (pki.TrustValue). Which certificates there are, and what is done when they have changed, is the roles'.
package credential
