package management

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// phaseOf is where the rotation of the cluster CA stands, and the step that comes next.
func phaseOf(state *store.State) (clusterv1.CAPhase, clusterv1.CAStep) {
	switch {
	case len(state.CA) < 2:
		return clusterv1.CAPhase_CA_PHASE_STEADY, clusterv1.CAStep_CA_STEP_PREPARE
	case state.CAPrepared:
		return clusterv1.CAPhase_CA_PHASE_PREPARED, clusterv1.CAStep_CA_STEP_ACTIVATE
	default:
		return clusterv1.CAPhase_CA_PHASE_ACTIVE, clusterv1.CAStep_CA_STEP_RETIRE
	}
}

// RotateCA implements clusterv1.ManagementServiceServer.
func (s *Service) RotateCA(ctx context.Context, request *clusterv1.RotateCARequest) (*clusterv1.RotateCAResponse, error) {
	step := request.GetStep()
	if _, known := clusterv1.CAStep_name[int32(step)]; !known || step == clusterv1.CAStep_CA_STEP_UNSPECIFIED {
		return nil, answer.Invalid(rules.Problems{{Field: "step", Message: "it is none of prepare, activate and retire"}})
	}
	// What nodes said, and what they were issued, is none of the records that decisions compare.
	stored, issued, err := s.inUse(ctx)
	if err != nil {
		return nil, err
	}
	now := s.config.Now()
	var leftOut []string
	state, err := s.change(ctx, request.GetDryRun(), func(state *store.State) (*store.Change, error) {
		phase, next := phaseOf(state)
		if step != next {
			return nil, answer.Errorf(codes.FailedPrecondition, "the rotation of the cluster CA is %s, and the step that comes next is %s, not %s",
				phaseName(phase), stepName(next), stepName(step))
		}
		leftOut = waitingFor(state, stored, issued, now)
		if len(leftOut) > 0 && !request.GetForce() {
			return nil, answer.Errorf(codes.FailedPrecondition, "the step %s of the rotation of the cluster CA waits for %d: %s", stepName(step), len(leftOut), few(leftOut))
		}
		if step == clusterv1.CAStep_CA_STEP_ACTIVATE {
			leftOut = append(leftOut, unaware(state)...)
		}
		authority, err := s.rotated(ctx, state, step)
		if err != nil {
			return nil, err
		}
		return &store.Change{Authority: authority}, nil
	})
	if err != nil {
		return nil, err
	}
	phase, _ := phaseOf(state)
	s.made(ctx, request.GetDryRun(), "cluster CA rotated", "step", stepName(step), "phase", phaseName(phase), "force", request.GetForce())
	return &clusterv1.RotateCAResponse{Phase: phase, Waiting: waitingFor(state, stored, issued, now), LeftOut: leftOut}, nil
}

// unaware says which machines wait to become members and have a ticket from before the newest CA was made: they know what their ticket knew. A ticket that is gone counts as older.
func unaware(state *store.State) (machines []string) {
	newest, err := x509.ParseCertificate(state.CA[len(state.CA)-1])
	for _, id := range state.NodeIDs() {
		switch record := state.Nodes[id]; record.GetState() {
		case clusterv1.NodeState_NODE_STATE_NEW, clusterv1.NodeState_NODE_STATE_STANDBY:
			ticket := state.Tickets[record.GetRegistration().GetTicketId()]
			// A certificate has whole seconds: a ticket of the same one may be older, too.
			if err == nil && (ticket == nil || !ticket.GetCreated().AsTime().Truncate(time.Second).After(newest.NotBefore.Add(identity.ClockSkew))) {
				machines = append(machines, fmt.Sprintf("machine %s, which is no member yet, has an older ticket and knows only the old CA", id))
			}
		}
	}
	slices.Sort(machines)
	return machines
}

// rotated is the cluster CA after a step.
func (s *Service) rotated(ctx context.Context, state *store.State, step clusterv1.CAStep) (*store.AuthorityChange, error) {
	switch step {
	case clusterv1.CAStep_CA_STEP_PREPARE:
		next, err := ca.Create(identity.TrustDomain(state.Cluster.GetClusterId()), s.config.Now())
		if err != nil {
			return nil, err
		}
		key, err := next.Key()
		if err != nil {
			return nil, err
		}
		return &store.AuthorityChange{
			CA:   &curatorv1.CertificateAuthority{Certificates: [][]byte{state.CA[0], next.Certificate()}, Prepared: true, Retired: state.CARetired},
			Next: &curatorv1.SigningKey{PrivateKey: key},
		}, nil
	case clusterv1.CAStep_CA_STEP_ACTIVATE:
		key, err := s.config.Store.ReadNextKey(ctx)
		if err != nil {
			return nil, err
		}
		last := len(state.CA) - 1
		if _, err := ca.Open(key, state.CA[last]); err != nil {
			return nil, &store.RecordError{Key: "authority/next", Err: errors.New("it is not the key of the cluster CA that is prepared")}
		}
		return &store.AuthorityChange{
			CA:      &curatorv1.CertificateAuthority{Certificates: append([][]byte{state.CA[last]}, state.CA[:last]...), Retired: state.CARetired},
			Signing: &curatorv1.SigningKey{PrivateKey: key},
		}, nil
	default:
		// The store replaces the CA of its members then, too (see store.Desired): only now nobody can ask one of them for a certificate by the old CA any more.
		return &store.AuthorityChange{CA: &curatorv1.CertificateAuthority{Certificates: state.CA[:1], Retired: state.CARetired + 1}}, nil
	}
}

// inUse reads what nodes have said, and the certificates in use.
func (s *Service) inUse(ctx context.Context) (*store.State, []store.Issued, error) {
	stored, err := s.config.Store.ReadCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	var issued []store.Issued
	for after, more := "", true; more; more = after != "" {
		var page []store.Issued
		if page, after, err = s.config.Store.ListIssued(ctx, after, maxCertificates); err != nil {
			return nil, nil, err
		}
		issued = append(issued, page...)
	}
	return stored, issued, nil
}

// waitingFor says which members are not ready for the step that comes next, sorted. stored is what they said, issued the certificates in use.
func waitingFor(state, stored *store.State, issued []store.Issued, now time.Time) []string {
	var waiting []string
	switch _, next := phaseOf(state); next {
	case clusterv1.CAStep_CA_STEP_ACTIVATE:
		waiting = distrusting(state, stored)
	case clusterv1.CAStep_CA_STEP_RETIRE:
		waiting = signedBefore(state, issued, now)
	}
	slices.Sort(waiting)
	return waiting
}

// distrusting says which members have not said yet that they trust the CA that is prepared.
func distrusting(state, stored *store.State) (waiting []string) {
	known, err := pins(state.CA)
	for _, id := range members(state) {
		trusts := func(other []byte) bool { return err == nil && bytes.Equal(other, known[len(known)-1]) }
		switch status := stored.Statuses[id]; {
		case slices.ContainsFunc(status.GetCaPins(), trusts):
		case !stored.Alive(id):
			waiting = append(waiting, fmt.Sprintf("node %s has not said that it trusts the new CA, and is not alive", id))
		default:
			waiting = append(waiting, fmt.Sprintf("node %s has not said yet that it trusts the new CA", id))
		}
	}
	return waiting
}

// signedBefore says which members use a certificate that another CA has signed than the one that signs now.
func signedBefore(state *store.State, issued []store.Issued, now time.Time) (waiting []string) {
	renewed := make(map[string]bool)
	for _, one := range issued {
		leaf, err := x509.ParseCertificate(one.Certificate)
		if err != nil || !inForce(state, one) || !now.Before(leaf.NotAfter) {
			continue
		}
		if signs(state, leaf) {
			renewed[one.Node] = renewed[one.Node] || one.Role == ""
			continue
		}
		whose := "node " + one.Node
		if one.Role != "" {
			whose = "role " + one.Role + " of " + whose
		} else {
			renewed[one.Node] = true // it is named for that
		}
		waiting = append(waiting, fmt.Sprintf("%s has a certificate of the old CA until %s", whose, leaf.NotAfter.UTC().Format(time.RFC3339)))
	}
	for _, id := range members(state) {
		if !renewed[id] {
			waiting = append(waiting, fmt.Sprintf("node %s has not asked for a certificate of the new CA yet", id))
		}
	}
	return waiting
}

// signs reports whether a leaf was signed by the CA that signs now.
func signs(state *store.State, leaf *x509.Certificate) bool {
	authority, err := x509.ParseCertificate(state.CA[0])
	return err == nil && leaf.CheckSignatureFrom(authority) == nil
}

func members(state *store.State) []string {
	return slices.DeleteFunc(state.NodeIDs(), func(id string) bool { return !isMember(state, id) })
}

func isMember(state *store.State, id string) bool {
	switch state.Nodes[id].GetState() {
	case clusterv1.NodeState_NODE_STATE_UP, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING:
		return true
	}
	return false
}

// inForce reports whether a certificate is of a member, and of a role that is assigned to it: others are refused by whoever looks at the directory.
func inForce(state *store.State, issued store.Issued) bool {
	return isMember(state, issued.Node) && (issued.Role == "" || assigned(state.Nodes[issued.Node].GetRoles(), issued.Role) != nil)
}

func phaseName(phase clusterv1.CAPhase) string {
	return strings.ToLower(strings.TrimPrefix(phase.String(), "CA_PHASE_"))
}

func stepName(step clusterv1.CAStep) string {
	return strings.ToLower(strings.TrimPrefix(step.String(), "CA_STEP_"))
}
