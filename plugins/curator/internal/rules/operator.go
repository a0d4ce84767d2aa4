package rules

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// reserved is what the audit log and the command line call callers who are not operators.
var reserved = []string{"core", "local", "node", "owner", "unknown"}

// Operator checks the form of what is to become an operator.
func Operator(name string, role clusterv1.OperatorRole, key []byte) (problems Problems) {
	problems.name("name", "operator", name)
	if slices.Contains(reserved, name) {
		problems.add("name", "%q would be taken for somebody else: it is what callers who are not operators are called", name)
	}
	switch role {
	case clusterv1.OperatorRole_OPERATOR_ROLE_OWNER, clusterv1.OperatorRole_OPERATOR_ROLE_OPERATOR, clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER:
	default:
		problems.add("role", "an operator is owner, operator or viewer")
	}
	return append(problems, PublicKey("public_key", key)...)
}

// KeyHolder returns whose key a public key is: "the owner's", "that of operator alice", "that of node reeve-…", or "" if it is nobody's. A key belongs
// to one of them, or it would not tell who calls.
func KeyHolder(state *store.State, key []byte) string {
	if bytes.Equal(key, state.Cluster.GetOwnerPublicKey()) {
		return "the owner's"
	}
	for _, operator := range state.Operators {
		if bytes.Equal(key, operator.GetPublicKey()) {
			return "that of operator " + operator.GetName()
		}
	}
	if node := JoinKeyHolder(state, key); node != nil {
		return "the join key of node " + node.GetId()
	}
	if len(key) < 16 {
		return ""
	}
	if node := state.Nodes[identity.NodeID(key)]; node != nil {
		// The ID is made of half of the key; who has the same half is not told apart by it either.
		return fmt.Sprintf("that of node %s", node.GetId())
	}
	return ""
}
