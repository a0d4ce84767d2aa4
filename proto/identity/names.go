package identity

import (
	"crypto/ed25519"
	"encoding/hex"
	"net/url"
	"regexp"
)

// NodeID is the ID of the node with a public key: "reeve-" and the hex of the key's first 16 bytes.
func NodeID(key ed25519.PublicKey) string {
	return "reeve-" + hex.EncodeToString(key[:16])
}

// TrustDomain is the SPIFFE trust domain of a cluster.
func TrustDomain(clusterID string) string {
	return clusterID + ".reeve"
}

// ClusterURI is the SPIFFE ID of the cluster itself, which its CA certificates carry.
func ClusterURI(trustDomain string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain}
}

// NodeURI is the SPIFFE ID of a node.
func NodeURI(trustDomain, nodeID string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/node/" + nodeID}
}

// RoleURI is the SPIFFE ID of a role on a node.
func RoleURI(trustDomain, nodeID, role string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/node/" + nodeID + "/role/" + role}
}

// CuratorName is the DNS name that only the certificates of curators carry: clients of the cluster API verify it.
func CuratorName(trustDomain string) string {
	return "curator." + trustDomain
}

// namePattern is the form of the names of plugins, roles and ConsensusUsers. They become parts of file names and store keys.
var namePattern = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// StoreRoot is the consensus store's own all-powerful user, which acts in the store's process only.
const StoreRoot = "root"

// StoreFence begins the names of users of the store's own that come and go: 26 of a-z and 2-7 follow. A version of the store that does not know them takes them for ConsensusUsers that
// nobody wishes, and deletes them.
const StoreFence = "fence-"

var fencePattern = regexp.MustCompile("^" + StoreFence + "[a-z2-7]{26}$")

// IsStoreFence reports whether name is one of those that begin with StoreFence.
func IsStoreFence(name string) bool { return fencePattern.MatchString(name) }

// ValidConsensusUser reports whether name may be a ConsensusUser: a valid name that is not one of the store's own.
func ValidConsensusUser(name string) bool {
	return ValidName(name) && name != StoreRoot && !IsStoreFence(name)
}

// ValidName reports whether name may name a plugin, a role or a ConsensusUser: 1 to 32 of a-z, 0-9 and '-', a letter first and
// no '-' last.
func ValidName(name string) bool {
	return namePattern.MatchString(name)
}
