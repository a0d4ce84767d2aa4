package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// MaxRegistration is the size of what a machine that comes may have the cluster keep, in bytes: some addresses, and roles with short configurations. Long ones
	// are set once it is approved. A thousand machines that nobody has looked at take no more of the store than a few plugins.
	MaxRegistration = 16 << 10
)

// Registration checks the form of what a machine says of itself when it registers.
func Registration(request *clusterv1.RegisterRequest) (problems Problems) {
	if size := proto.Size(request); size > MaxRegistration {
		problems.add("roles", "the registration has %d bytes, at most %d fit: leave long configurations to when the node is approved", size, MaxRegistration)
		return problems
	}
	if len(request.GetJoinPublicKey()) > 0 {
		problems = append(problems, PublicKey("join_public_key", request.GetJoinPublicKey())...)
	}
	problems = append(problems, Labels("labels", request.GetLabels())...)
	for key, value := range request.GetLabels() {
		if !limits.Line(key) || !limits.Line(value) {
			problems.add("labels", "a label is one line of text, and %s is not", quote(key))
		}
	}
	problems = append(problems, Assignments("roles", request.GetRoles())...)
	if n := len(request.GetAddresses()); n > limits.ReportedAddresses {
		problems.add("addresses", "there are %d addresses, at most %d fit", n, limits.ReportedAddresses)
	}
	for i, address := range request.GetAddresses() {
		if _, err := netip.ParseAddr(address); err != nil || len(address) > limits.Name || !limits.Line(address) {
			problems.add(fmt.Sprintf("addresses[%d]", i), "it is not an IP address")
		}
	}
	return problems
}

// Assign is roles as a node is assigned them that has none yet, sorted.
func Assign(asked []*clusterv1.RoleAssignment, generation uint64) []*clusterv1.RoleAssignment {
	var roles []*clusterv1.RoleAssignment
	for _, role := range asked {
		roles = append(roles, &clusterv1.RoleAssignment{Role: role.GetRole(), Configuration: role.GetConfiguration(), Generation: generation})
	}
	slices.SortFunc(roles, func(a, b *clusterv1.RoleAssignment) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
	return roles
}

// JoinKeyHolder returns the node whose join key a key is; nil: it is no node's.
func JoinKeyHolder(state *store.State, key []byte) *clusterv1.NodeRecord {
	if len(key) == 0 {
		return nil
	}
	for _, node := range state.Nodes {
		if bytes.Equal(node.GetJoinPublicKey(), key) {
			return node
		}
	}
	return nil
}
