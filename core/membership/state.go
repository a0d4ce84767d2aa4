package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/sdk/event"
)

// transitions is which state may follow which. A state may always be confirmed with another reason.
var transitions = map[State][]State{
	Unknown:       {Bootstrapping, Foreign, Trusted, Split, Disowning},
	Bootstrapping: {Home},
	Foreign:       {Trusted, Disowning},
	Trusted:       {Home, Disowning},
	Home:          {Split, Disowning},
	Split:         {Home, Disowning},
	Disowning:     {},
}

// TransitionError says that a change of the membership state was asked for that does not exist. It is a fault of the program.
type TransitionError struct {
	From, To State
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("membership: there is no way from %s to %s", Name(e.From), Name(e.To))
}

// DisowningError says that the node was removed from its cluster, so that it will never be Home again.
type DisowningError struct {
	NodeID, ClusterID string
	// Reason is why, as the cluster said.
	Reason string
}

func (e *DisowningError) Error() string { return "membership: " + e.Message() }

// Message is the error for people.
func (e *DisowningError) Message() string {
	return fmt.Sprintf("node %s was removed from cluster %s (%s) and never becomes a member again: start anew with an empty system directory", e.NodeID, e.ClusterID, e.Reason)
}

// Name is a state as people read it: "Home".
func Name(state State) string {
	name := strings.ToLower(strings.TrimPrefix(state.String(), "MEMBERSHIP_STATE_"))
	return strings.ToUpper(name[:1]) + name[1:]
}

// machine is the membership state. It has one writer.
type machine struct {
	status event.Value[Status]
	now    func() time.Time
}

// to enters a state, or gives the present one another reason.
func (m *machine) to(state State, reason string) error {
	status, _ := m.status.Get()
	if status.State == state {
		if status.Reason != reason {
			status.Reason = reason
			m.status.Set(status)
		}
		return nil
	}
	if !slices.Contains(transitions[status.State], state) {
		return &TransitionError{From: status.State, To: state}
	}
	status.State, status.Reason, status.Since, status.Fresh = state, reason, m.now(), false
	m.status.Set(status)
	return nil
}

// begin enters the state of a member that has just started.
func (m *machine) begin() error {
	status, _ := m.status.Get()
	if !slices.Contains(transitions[status.State], Split) {
		return &TransitionError{From: status.State, To: Split}
	}
	status.State, status.Reason, status.Since, status.Fresh = Split, "no contact to the cluster yet", m.now(), true
	m.status.Set(status)
	return nil
}

// settle takes note that a member has had its time to find the cluster.
func (m *machine) settle() {
	if status, _ := m.status.Get(); status.Fresh {
		status.Fresh = false
		m.status.Set(status)
	}
}

// GetHome waits until the node is Home. *DisowningError if it never will be; otherwise it fails only with the context's error.
func GetHome(ctx context.Context, status *event.Value[Status]) (Status, error) {
	s, err := status.Wait(ctx, func(s Status) bool { return s.State == Home || s.State == Disowning })
	if err != nil {
		return s, err
	}
	if s.State == Disowning {
		return s, &DisowningError{NodeID: s.NodeID, ClusterID: s.ClusterID, Reason: s.Reason}
	}
	return s, nil
}
