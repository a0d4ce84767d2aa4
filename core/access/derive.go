package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// Short names for the reasons why the store is not open.
const (
	waiting          = hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_WAITING
	noLocalConsensus = hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NO_LOCAL_CONSENSUS
	notMember        = hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_MEMBER
	notGranted       = hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_GRANTED
)

// candidate is a running instance whose role declares a ConsensusUser.
type candidate struct {
	remit   *plugin.Remit
	process *plugin.Process // nil if unknown
	user    string
	// refusal says why it gets no access; nil if it may have access.
	refusal *hostv1.ConsensusUnavailable
}

func refuse(reason hostv1.ConsensusUnavailableReason, message string) *hostv1.ConsensusUnavailable {
	return &hostv1.ConsensusUnavailable{Reason: reason, Message: message}
}

// candidatesOf returns the running instances whose roles declare a ConsensusUser, sorted by instance ID, and refuses those whose user is not granted.
// An instance that is being stopped is included: it may need the store to end cleanly.
func candidatesOf(instances roles.Instances) []*candidate {
	var found []*candidate
	for _, instance := range instances {
		remit := instance.Remit
		if remit == nil || remit.Manifest.GetConsensusUser() == "" {
			continue
		}
		user := remit.Manifest.GetConsensusUser()
		c := &candidate{remit: remit, process: instance.Process, user: user}
		if granted := remit.Grants.GetConsensusUser(); granted != user {
			c.refusal = refuse(notGranted, fmt.Sprintf("role %s is not granted the ConsensusUser %s that it declares: ask the cluster's owner to grant it",
				remit.Role, user))
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b *candidate) int { return strings.Compare(a.remit.InstanceID, b.remit.InstanceID) })
	return found
}

// refusalBy returns why the node's membership denies a candidate access; nil if it does not.
func refusalBy(c *candidate, status membership.Status, known bool) *hostv1.ConsensusUnavailable {
	if !known {
		return refuse(waiting, "the node has just started and does not know yet whether it is a member of its cluster")
	}
	because := func(rule string) *hostv1.ConsensusUnavailable {
		message := fmt.Sprintf("the node is %s, and %s", membership.Name(status.State), rule)
		if status.Reason != "" {
			message += " (" + status.Reason + ")"
		}
		return refuse(notMember, message)
	}
	manifest := c.remit.Manifest
	switch status.State {
	case membership.Home:
		return nil
	case membership.Bootstrapping:
		if !slices.Contains(manifest.GetProvides(), roles.CapabilityCluster) {
			return because("while the cluster is being made, only the role that provides " + roles.CapabilityCluster + " may use the consensus store: wait until the node is Home")
		}
		return nil
	case membership.Split:
		// A restarted core needs time to find its cluster. Until then, roles keep the access that they had under the core before.
		if !status.Fresh && !keepsAccessWhenSplit(manifest) {
			return because("role " + c.remit.Role + " neither starts from cache nor continues in Split: wait until the node is Home again")
		}
		return nil
	default:
		return because("only a member of the cluster may use its consensus store")
	}
}

func keepsAccessWhenSplit(manifest *rolev1.RoleManifest) bool {
	return manifest.GetStartsFromCache() || manifest.GetInSplit() == rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_CONTINUE
}

// providers are the roles known to provide the consensus store. What a role provides is known only while it runs, but a role that ended and will be
// restarted still counts for those who wait for it.
type providers map[string]struct{}

// learn records which roles provide the store now.
func (p providers) learn(instances roles.Instances, capabilities roles.Capabilities) {
	for _, instance := range instances {
		if instance.Remit == nil {
			continue
		}
		if slices.Contains(instance.Remit.Manifest.GetProvides(), roles.CapabilityConsensus) {
			p[instance.Remit.Role] = struct{}{}
		} else {
			delete(p, instance.Remit.Role)
		}
	}
	if provider, ok := capabilities[roles.CapabilityConsensus]; ok {
		p[provider.Role] = struct{}{}
	}
}

// among reports whether an instance, running or not, is of a role that provides the store.
func (p providers) among(instances roles.Instances) bool {
	return slices.ContainsFunc(instances, func(instance roles.Instance) bool {
		_, ok := p[instance.Status.GetRole()]
		return ok
	})
}

// uidOf returns the user ID of a running instance.
func uidOf(instances roles.Instances, instanceID string) (uint32, bool) {
	for _, instance := range instances {
		if instance.Remit != nil && instance.Remit.InstanceID == instanceID {
			return instance.Remit.UID, true
		}
	}
	return 0, false
}
