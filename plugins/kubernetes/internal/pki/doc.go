// Package pki is the role kubernetes-pki: it keeps the authorities of Kubernetes and the keys of service accounts in the consensus store, and signs.
//
// The authorities are made once in the life of a cluster, in one transaction that only succeeds while there are none (authority.go). Every instance of the role then has the same ones, and
// any of them signs for anybody. What a caller is given follows from who it has proved to be over the connection, and from nothing that it says of itself (service.go); the keys of the
// authorities are in the store and in the memory of this role's processes, and nowhere else.
//
// They are put into the place of others in three steps, each a transaction that compares everything it has read (rotation.go, rotate.go). Every instance follows the store (keeper.go) and tells who
// listens when the trust has changed; whoever works with certificates of Kubernetes publishes with which trust it does, and the next step waits for that.
//
// The package owns the keys of the ConsensusUser kubernetes-pki. It watches the cluster's directory, for the addresses of workers, and publishes the endpoint "pki" and the value "trust-revision".
package pki
