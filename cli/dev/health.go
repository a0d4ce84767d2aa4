package dev

import (
	"fmt"
	"slices"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Health is how near a node is to being up.
type Health struct {
	// Up says that the node is Home and that its default roles are Ready.
	Up bool
	// Missing says what is missing where Up is false.
	Missing string
	// Broken says, if not empty, that it will not be up by itself, and why.
	Broken string
	// Ailing says, if not empty, that a role runs badly, ends again and again, or runs and waits for its machine, and why. It may recover.
	Ailing string
	// Manageable says that the node is Home and the cluster API answers: an operator can set right what is wrong with a role.
	Manageable bool
}

// Why says why a node is not up: by a role that runs badly, such as one whose data is damaged, first.
func (h Health) Why() string {
	switch {
	case h.Missing == "" && h.Ailing == "":
		return "it has not said anything"
	case h.Ailing == "" || h.Ailing == h.Missing:
		return h.Missing
	}
	return h.Ailing + "; " + h.Missing
}

// Judge says how near a node is to being up. defaults are the roles with which its cluster was made; those of them that the cluster no longer
// assigns to the node are left out, once the record of the node says so: it is nil as long as it is not known.
func Judge(status *nodev1.Status, defaults []string, record *clusterv1.NodeRecord) Health {
	var health Health
	missing := func(text string) {
		if health.Missing == "" {
			health.Missing = text
		}
	}
	if closed := output.ExplainClosed(status.GetStorage()); closed != "" {
		missing(output.Clean(closed))
	}
	membership := status.GetMembership()
	switch membership.GetState() {
	case hostv1.MembershipState_MEMBERSHIP_STATE_HOME:
		health.Manageable = record != nil
		if record == nil {
			missing("the cluster has not said which roles the node has")
		}
	case hostv1.MembershipState_MEMBERSHIP_STATE_DISOWNING:
		health.Broken = "the node was removed from its cluster"
	default:
		missing(output.WithReason("the node is "+output.State(membership.GetState()), membership.GetReason()))
	}
	for _, role := range defaults {
		if record != nil && !slices.ContainsFunc(record.GetRoles(), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == role }) {
			continue
		}
		i := slices.IndexFunc(status.GetNode().GetInstances(), func(i *clusterv1.InstanceStatus) bool { return i.GetRole() == role })
		if i < 0 {
			missing(fmt.Sprintf("role %s has not begun", role))
			continue
		}
		instance := status.GetNode().GetInstances()[i]
		switch instance.GetState() {
		case hostv1.InstanceState_INSTANCE_STATE_READY:
		case hostv1.InstanceState_INSTANCE_STATE_FAILED:
			health.Broken = output.WithReason("role "+role+" is Failed", instance.GetReason())
		default:
			text := output.WithReason("role "+role+" is "+output.State(instance.GetState()), instance.GetReason())
			missing(text)
			switch instance.GetState() {
			case hostv1.InstanceState_INSTANCE_STATE_DEGRADED, hostv1.InstanceState_INSTANCE_STATE_BACKOFF:
				health.Ailing = text
			case hostv1.InstanceState_INSTANCE_STATE_BLOCKED:
				if instance.GetPid() != 0 { // by the machine, and not by another role that is about to be there
					health.Ailing = text
				}
			}
		}
	}
	health.Up = health.Missing == "" && health.Broken == ""
	return health
}

// Changes says in lines, for people, what is different in a newer status.
func Changes(old, new *nodev1.Status) []string {
	var lines []string
	was, is := old.GetMembership(), new.GetMembership()
	if was.GetState() != is.GetState() || was.GetReason() != is.GetReason() {
		lines = append(lines, output.WithReason("node: "+output.State(is.GetState()), is.GetReason()))
	}
	if had, has := volume(old), volume(new); had != has && has != "" {
		lines = append(lines, has)
	}
	before := make(map[string]*clusterv1.InstanceStatus)
	for _, instance := range old.GetNode().GetInstances() {
		before[instance.GetRole()] = instance
	}
	for _, instance := range new.GetNode().GetInstances() {
		former := before[instance.GetRole()]
		delete(before, instance.GetRole())
		if former == nil || former.GetState() != instance.GetState() || former.GetReason() != instance.GetReason() {
			lines = append(lines, output.WithReason("role "+instance.GetRole()+": "+output.State(instance.GetState()), instance.GetReason()))
		}
	}
	for _, instance := range old.GetNode().GetInstances() {
		if before[instance.GetRole()] != nil {
			lines = append(lines, "role "+instance.GetRole()+": gone")
		}
	}
	return lines
}

// volume says in a line how the volume of a node is; empty: the node does not say.
func volume(status *nodev1.Status) string {
	storage := status.GetStorage()
	if output.State(storage.GetState()) == "" {
		return ""
	}
	return output.WithReason("volume: "+output.State(storage.GetState()), storage.GetProblem())
}
