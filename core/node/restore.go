package node

import (
	"context"
	"fmt"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/unseal"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Restore is how a node is restored of a snapshot.
type Restore struct {
	Snapshot unseal.Restore
	// Send sends the snapshot to the role that provides the store.
	Send func(context.Context, consensusv1.ConsensusServiceClient) error
	// Changed is told how the node's membership changes, and Failed what keeps the node from its cluster and does not pass by itself.
	Changed func(membership.Status)
	Failed  func(problem string)
}

func (r *Restore) snapshot() *unseal.Restore {
	if r == nil {
		return nil
	}
	return &r.Snapshot
}

// CheckRestore returns what Run would refuse of a node that is to be restored, as far as that can be told without changing anything.
func CheckRestore(parameters *nodev1.Parameters, file string, snapshot unseal.Restore, again bool) error {
	mark := params.OpenMark(file)
	if !again {
		if err := unseal.CheckMounts(parameters, mark); err != nil {
			return err
		}
	}
	return unseal.CheckRestore(parameters, mark, &snapshot, again)
}

// send is what sends the snapshot; nil if the node is not restored.
func (w *whole) send() func(context.Context, consensusv1.ConsensusServiceClient) error {
	if w.node.config.Restore == nil {
		return nil
	}
	return w.node.config.Restore.Send
}

// followRestore tells whoever restores the node how it goes.
func (w *whole) followRestore(ctx context.Context) {
	restore := w.node.config.Restore
	if restore == nil {
		return
	}
	states, problems := w.member.Status().Watch(), w.member.Problem().Watch()
	for {
		status, _ := states.Latest()
		restore.Changed(status)
		if problem, _ := problems.Latest(); problem != nil {
			restore.Failed(problem.Message)
		}
		select {
		case <-ctx.Done():
			return
		case <-states.Changed():
		case <-problems.Changed():
		}
	}
}

// storeChanged records what the node does about another store of its cluster.
func (w *whole) storeChanged(change cluster.StoreChange) {
	if change.Refused != "" {
		w.recorder.Record(&nodev1.Event{
			Type: events.StoreRefused, Severity: nodev1.Severity_SEVERITY_ERROR, Message: change.Refused,
			Details: map[string]string{"follows": change.Before.String(), "refused": change.Offered.String(), "curator": change.Curator},
		})
		return
	}
	w.recorder.Record(&nodev1.Event{
		Type: events.StoreFollowed, Severity: nodev1.Severity_SEVERITY_WARNING,
		Message: fmt.Sprintf("this node follows %s of the cluster's store from now on: it has no contact any more to a curator of %s", change.Offered, change.Before),
		Details: map[string]string{"before": change.Before.String(), "now": change.Offered.String(), "curator": change.Curator},
	})
}
