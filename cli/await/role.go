package await

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// State is what may be waited for of a role: the name of a state of instances, or one of the constants.
type State string

// The states that say more than the name of an instance's state.
const (
	Ready State = "Ready"
	// Started: a process runs, in whatever state.
	Started State = "Started"
	// Gone: the node no longer reports the role.
	Gone   State = "Gone"
	Failed State = "Failed"
)

// States are all that may be waited for.
func States() []string {
	return []string{string(Ready), string(Started), "Degraded", string(Failed), string(Gone), "Blocked", "Starting", "Backoff", "Stopping", "Stopped"}
}

// Role is the condition that a role is in a state.
type Role struct {
	Name string
	// NodeID is for the advice of what to do.
	NodeID string
	State  State
	// Generation is that of the configuration with which the role must be in the state; 0: any.
	Generation uint64
	// Former is an instance that another one must have replaced; empty: none.
	Former string
	// BlockedIsFinal says that a role which stays Blocked is not waited for, whatever keeps it.
	BlockedIsFinal bool

	seen     bool
	instance *clusterv1.InstanceStatus
	// inherited says that the present state is one that was there from the beginning.
	inherited bool
}

var _ Condition = (*Role)(nil)

// Instance is what was last reported of the role; nil if nothing is.
func (r *Role) Instance() *clusterv1.InstanceStatus { return r.instance }

// Wanted implements Condition.
func (r *Role) Wanted() string { return "role " + r.Name + " is " + r.state() }

// Unmet implements Condition.
func (r *Role) Unmet() string { return "role " + r.Name + " is not " + r.state() }

func (r *Role) state() string {
	switch r.State {
	case Gone, Started:
		return strings.ToLower(string(r.State))
	}
	return string(r.State)
}

// See implements Condition.
func (r *Role) See(known Seen) Verdict {
	instance, ok := find(known, r.Name)
	if !ok {
		return Verdict{Outcome: Pending, Text: "the node has not reported its roles"}
	}
	unchanged := r.seen && sameState(r.instance, instance)
	r.inherited = !r.seen || (r.inherited && unchanged)
	r.instance, r.seen = instance, true
	verdict := Verdict{Outcome: r.judge(), Text: r.text(), Next: r.next()}
	if unchanged {
		verdict.Outcome = Same
	}
	if failure := instance.GetLastFailure(); failure != nil {
		verdict.Details = failureDetails(failure)
	}
	return verdict
}

// find returns what the node says of a role, the newer source first; false if it has said nothing at all.
func find(known Seen, role string) (*clusterv1.InstanceStatus, bool) {
	reported := known.Status.GetNode()
	if known.Status == nil {
		if known.Node == nil {
			return nil, false
		}
		reported = known.Node.GetStatus()
	}
	i := slices.IndexFunc(reported.GetInstances(), func(i *clusterv1.InstanceStatus) bool { return i.GetRole() == role })
	if i < 0 {
		return nil, true
	}
	return reported.GetInstances()[i], true
}

func (r *Role) judge() Outcome {
	i := r.instance
	switch {
	case i == nil && r.State == Gone:
		return Done
	case r.State == Gone && i.GetState() == hostv1.InstanceState_INSTANCE_STATE_STOPPED && i.GetReason() != "":
		return Refused // it has ended, and says what it left
	case i == nil || r.State == Gone:
		return Pending
	case r.Generation != 0 && i.GetConfigurationGeneration() != r.Generation:
		return Pending
	}
	// A role can fail without that there was another instance.
	follows := r.Former == "" || i.GetInstanceId() != r.Former
	state := output.State(i.GetState())
	switch {
	case follows && r.State == Started && i.GetPid() != 0 && i.GetState() != hostv1.InstanceState_INSTANCE_STATE_STOPPING:
		return Done
	case follows && string(r.State) == state:
		return Done
	}
	switch i.GetState() {
	case hostv1.InstanceState_INSTANCE_STATE_FAILED:
		// What another instance than the former one came to is newer than the change.
		if r.inherited && (r.Former == "" || !follows) {
			return Doubtful
		}
		return Refused
	case hostv1.InstanceState_INSTANCE_STATE_BLOCKED:
		if r.BlockedIsFinal {
			return Doubtful
		}
	}
	return Pending
}

func sameState(a, b *clusterv1.InstanceStatus) bool {
	return (a == nil) == (b == nil) &&
		a.GetState() == b.GetState() &&
		a.GetReason() == b.GetReason() &&
		a.GetInstanceId() == b.GetInstanceId() &&
		(a.GetPid() == 0) == (b.GetPid() == 0) &&
		a.GetConfigurationGeneration() == b.GetConfigurationGeneration() &&
		a.GetSince().AsTime().Equal(b.GetSince().AsTime())
}

// text is the present state, for people.
func (r *Role) text() string {
	i := r.instance
	switch {
	case i == nil && r.State == Gone:
		return fmt.Sprintf("role %s is gone", r.Name)
	case i == nil:
		return fmt.Sprintf("role %s is not reported by the node yet", r.Name)
	}
	text := fmt.Sprintf("role %s is %s", r.Name, output.State(i.GetState()))
	reason := i.GetReason()
	if reason == "" && i.GetState() == hostv1.InstanceState_INSTANCE_STATE_FAILED {
		reason = i.GetLastFailure().GetCause()
	}
	text = output.WithReason(text, reason)
	switch {
	case r.State == Gone:
	case r.Generation != 0 && i.GetConfigurationGeneration() != r.Generation:
		text += " (still with its former configuration)"
	case r.Former != "" && i.GetInstanceId() == r.Former && i.GetPid() != 0:
		text += " (still the former instance)"
	}
	return text
}

func (r *Role) next() string {
	if r.instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_BLOCKED && r.instance.GetPid() != 0 {
		return fmt.Sprintf("Its process runs, and goes on by itself when the reason is gone. Run `reeve logs %s %s` to see what it wrote.", r.NodeID, r.Name)
	}
	if r.instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_BLOCKED {
		return fmt.Sprintf("Run `reeve describe role %s %s` to see what it requires, and `reeve status %s` to see how that is.", r.NodeID, r.Name, r.NodeID)
	}
	if r.State == Gone {
		return fmt.Sprintf("The role is taken from the node, and what it left is still there: mend what the reason says, then run `reeve node role add %[1]s %[2]s` and remove it again.", r.NodeID, r.Name)
	}
	return fmt.Sprintf("Run `reeve logs %[1]s %[2]s` to see what it wrote, and `reeve node role restart %[1]s %[2]s` to start it again.", r.NodeID, r.Name)
}

// failureDetails are a failure as far as it is not in the state's reason.
func failureDetails(failure *clusterv1.Failure) []string {
	details := []string{"Its last failure: " + output.ExplainFailure(failure) + "."}
	if len(failure.GetLines()) > 0 {
		details = append(details, "It last wrote:")
	}
	for _, line := range failure.GetLines() {
		details = append(details, "  | "+output.Clean(line))
	}
	return details
}
