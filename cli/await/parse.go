package await

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

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
		if i := indexFold(Memberships(), state); i >= 0 {
			return Membership(Memberships()[i]), nil
		}
		return nil, fault.New(fault.Usage, "--for "+quote(text)+" names no membership state", "It is one of "+strings.Join(Memberships(), ", ")+".")
	case strings.EqualFold(what, "volume"):
		if i := indexFold(Volumes(), state); i >= 0 {
			return Volume(Volumes()[i]), nil
		}
		return nil, fault.New(fault.Usage, "--for "+quote(text)+" names no state of a volume", "It is one of "+strings.Join(Volumes(), ", ")+".")
	case strings.EqualFold(kind, "role") && identity.ValidName(name):
		if i := indexFold(States(), state); i >= 0 {
			return &Role{Name: name, NodeID: nodeID, State: States()[i]}, nil
		}
		return nil, fault.New(fault.Usage, "--for "+quote(text)+" names no state of a role", "It is one of "+join(States())+".")
	}
	return nil, fault.New(fault.Usage, "--for "+quote(text)+" is no condition", "It is role/NAME=STATE, membership=STATE, volume=STATE or healthy: --for role/curator=Ready.")
}

// Memberships are the membership states that may be waited for.
func Memberships() []string {
	return words(hostv1.MembershipState(0).Descriptor(), func(number protoreflect.EnumNumber) protoreflect.Enum { return hostv1.MembershipState(number) })
}

// Volumes are the states of a volume that may be waited for.
func Volumes() []string {
	return words(clusterv1.StorageState(0).Descriptor(), func(number protoreflect.EnumNumber) protoreflect.Enum { return clusterv1.StorageState(number) })
}

// words are the words for all values of an enum but the unspecified one.
func words(of protoreflect.EnumDescriptor, value func(protoreflect.EnumNumber) protoreflect.Enum) []string {
	var names []string
	for i := range of.Values().Len() {
		if name := output.State(value(of.Values().Get(i).Number())); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func indexFold[S ~string](names []S, name string) int {
	return slices.IndexFunc(names, func(one S) bool { return strings.EqualFold(string(one), name) })
}

func join(states []State) string {
	var names []string
	for _, state := range states {
		names = append(names, string(state))
	}
	return strings.Join(names, ", ")
}

func quote(text string) string { return "\"" + output.Clean(text) + "\"" }
