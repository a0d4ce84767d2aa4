package store

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Commitment is what a node that becomes a member commits itself to.
type Commitment struct {
	Node string
	// CUK is the cluster's half of the key of the node's volume; empty: it has none.
	CUK []byte
	// Incarnation is the start of its core that the cluster takes for the node from now on.
	Incarnation *clusterv1.Incarnation
}

// write makes a commitment part of a transaction.
func (c *Commitment) write(writes *transaction) {
	if c == nil {
		return
	}
	if len(c.CUK) > 0 {
		writes.put(unlockKey(c.Node), &curatorv1.UnlockKey{Cuk: c.CUK})
	}
	writes.put(incarnationKey(c.Node), known(c.Incarnation))
}

// forget removes what is kept for a node that is a member no more: its half of a key opens nothing any more, and nobody speaks for it.
func forget(writes *transaction, before, after *clusterv1.NodeRecord) {
	const gone = clusterv1.NodeState_NODE_STATE_DECOMMISSIONED
	if after.GetState() != gone || before.GetState() == gone {
		return
	}
	writes.delete(unlockKey(after.GetId()))
	writes.delete(incarnationKey(after.GetId()))
	writes.delete(refusedKey(after.GetId()))
	writes.delete(statusKey(after.GetId()))
	writes.delete(snapshotsKey(after.GetId()))
}

// tombstones has the records of nodes that are removed hold what such a node is refused and told by, and nothing besides: the record stays for years, and what a machine
// said of itself, or people of it, does not have to.
func (c *Change) tombstones() {
	for n, node := range c.Nodes {
		if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			c.Nodes[n] = &clusterv1.NodeRecord{
				Id: node.GetId(), PublicKey: node.GetPublicKey(), JoinPublicKey: node.GetJoinPublicKey(), State: node.GetState(), Generation: node.GetGeneration(),
				Created: node.GetCreated(), Since: node.GetSince(), Removal: node.GetRemoval(),
			}
		}
	}
}

// ReadCUK reads the cluster's half of the key of a node's volume; nil: the cluster does not have it. It is part of no State, and so of no snapshot.
func (s *Store) ReadCUK(ctx context.Context, node string) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	got, err := s.client.Get(bounded, unlockKey(node))
	if err != nil {
		return nil, s.failed(ctx, "read the key of a node's volume", err)
	}
	if len(got.Kvs) == 0 {
		return nil, nil
	}
	record := new(curatorv1.UnlockKey)
	if err := proto.Unmarshal(got.Kvs[0].Value, record); err != nil {
		// What is wrong with a key is not told: it could say what is in it.
		return nil, &RecordError{Key: unlockKey(node), Err: errors.New("it cannot be read")}
	}
	return record.GetCuk(), nil
}
