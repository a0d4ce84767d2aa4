package store

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// nonceSize is the length of an incarnation's nonce in bytes.
const nonceSize = 16

// known is an incarnation as it is kept.
func known(incarnation *clusterv1.Incarnation) *curatorv1.KnownIncarnation {
	return &curatorv1.KnownIncarnation{Number: incarnation.GetNumber(), Nonce: incarnation.GetNonce()}
}

func checkIncarnation(known *curatorv1.KnownIncarnation) error {
	if known.GetNumber() == 0 || len(known.GetNonce()) != nonceSize {
		return fmt.Errorf("it has the number %d and a nonce of %d bytes", known.GetNumber(), len(known.GetNonce()))
	}
	return nil
}

// Incarnate has a start of a node's core be the one that is taken for the node, if the cluster has known the same one since a revision, and returns the
// revision from which on that is so. The error is ErrConflict if another one has called since, or the record of the node is not as it was, ErrNoNode if there is none, and
// ErrFull if the store takes nothing. It is no management write: a node that starts is in nobody's way.
func (s *Store) Incarnate(ctx context.Context, revision int64, node string, incarnation *clusterv1.Incarnation) (int64, error) {
	var writes transaction
	writes.put(incarnationKey(node), known(incarnation))
	if err := writes.check(); err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	checkpoint.Before(steps.Incarnate)
	response, err := s.client.Txn(bounded).
		If(append(unchangedSince(nodeKey(node), revision), clientv3.Compare(clientv3.ModRevision(incarnationKey(node)), "<", revision+1))...).
		Then(writes.ops...).
		Else(clientv3.OpGet(nodeKey(node), clientv3.WithKeysOnly())).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return 0, ErrFull
	}
	if err != nil {
		return 0, s.failed(ctx, "take note of a start of a node", err)
	}
	checkpoint.After(steps.Incarnate)
	s.reach(response.Header)
	switch {
	case response.Succeeded:
		return response.Header.GetRevision(), nil
	case response.Responses[0].GetResponseRange().GetCount() == 0:
		return 0, ErrNoNode
	}
	return 0, ErrConflict
}

// NoteRefused keeps which start of a node's core was refused last, for operators, if the record of the node is still as it was at a revision. Otherwise nothing is kept: the
// node may have been removed, and one that was not calls again.
func (s *Store) NoteRefused(ctx context.Context, revision int64, node string, refused *curatorv1.RefusedIncarnation) error {
	var writes transaction
	writes.put(refusedKey(node), refused)
	if err := writes.check(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	err := checkpoint.Around(steps.NoteRefused, func() error {
		_, err := s.client.Txn(bounded).If(unchangedSince(nodeKey(node), revision)...).Then(writes.ops...).Commit()
		return err
	})
	if err != nil {
		return s.failed(ctx, "take note of a start of a node that was refused", err)
	}
	return nil
}

// refused says which start of a node's core was refused; "": none.
func (s *State) refused(id string) string {
	refused := s.Refused[id]
	if refused == nil {
		return ""
	}
	at := refused.GetTime().AsTime().UTC().Format("2006-01-02T15:04:05Z")
	what := fmt.Sprintf("an older start of the node (number %d, and number %d is known) called at %s from %s, and was refused: its disk is an older copy",
		refused.GetNumber(), refused.GetKnown(), at, refused.GetAddress())
	if refused.GetTwin() {
		what = fmt.Sprintf("two machines have the key of the node: the second one (number %d) called at %s from %s, and was refused", refused.GetNumber(), at, refused.GetAddress())
	}
	return fmt.Sprintf("%s; switch off the machine that is not to be the node, then have the next start of the other one taken for it (`reeve node accept %s`)", what, id)
}
