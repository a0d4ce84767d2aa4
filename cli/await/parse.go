package await

import (
	"strings"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Parse returns the condition that a text names: role/NAME=STATE, membership=STATE, volume=STATE or healthy. Upper and lower case are the same. The error is a usage
// fault.
func Parse(text, nodeID string) (Condition, error) {
	what, state, _ := strings.Cut(text, "=")
	kind, name, _ := strings.Cut(what, "/")
	switch {
	case strings.EqualFold(text, "healthy"):
		return Healthy(), nil
	case strings.EqualFold(what, "membership"):
		found, err := oneOf(Memberships(), state, text, "membership state")
		return Membership(found), err
	case strings.EqualFold(what, "volume"):
		found, err := oneOf(Volumes(), state, text, "state of a volume")
		return Volume(found), err
	case strings.EqualFold(kind, "role") && identity.ValidName(name):
		found, err := oneOf(States(), state, text, "state of a role")
		return &Role{Name: name, NodeID: nodeID, State: State(found)}, err
	}
	return nil, fault.New(fault.Usage, "--for "+quote(text)+" is no condition", "It is role/NAME=STATE, membership=STATE, volume=STATE or healthy: --for role/curator=Ready.")
}

// Memberships are the membership states that may be waited for.
func Memberships() []string { return output.States(hostv1.MembershipState(0).Descriptor()) }

// Volumes are the states of a volume that may be waited for.
func Volumes() []string { return output.States(clusterv1.StorageState(0).Descriptor()) }

// oneOf returns the state of a list that has a name. text is the whole condition, for the error.
func oneOf(states []string, name, text, what string) (string, error) {
	for _, state := range states {
		if strings.EqualFold(state, name) {
			return state, nil
		}
	}
	return "", fault.New(fault.Usage, "--for "+quote(text)+" names no "+what, "It is one of "+strings.Join(states, ", ")+".")
}

func quote(text string) string { return "\"" + output.Clean(text) + "\"" }
