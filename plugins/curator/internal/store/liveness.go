package store

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// PutStatus replaces what a node last reported of itself. Its errors are those of putOf.
func (s *Store) PutStatus(ctx context.Context, status *clusterv1.NodeStatus) error {
	return s.putOf(ctx, status.GetNodeId(), statusKey(status.GetNodeId()), status, "write the status of a node")
}

// PutSnapshots replaces what a node has of scheduled snapshots. Its errors are those of putOf.
func (s *Store) PutSnapshots(ctx context.Context, kept *clusterv1.NodeSnapshots) error {
	return s.putOf(ctx, kept.GetNodeId(), snapshotsKey(kept.GetNodeId()), kept, "write what a node has of snapshots")
}

// putOf writes what a node says of itself. The error is ErrNoNode if there is no record of the node, and a *RemovedError if it was removed: what is kept of
// such a node is its tombstone, and a report that was under way when it was made is not written behind it.
func (s *Store) putOf(ctx context.Context, node, key string, said proto.Message, doing string) error {
	value, err := encode(said)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	// Only changes of the node's record can be in the way, which are rare.
	_, err = backoff.Retry(bounded, func() (struct{}, error) {
		err := s.putOnce(bounded, node, key, value)
		if err != nil && !errors.Is(err, ErrConflict) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxTries(tries))
	var (
		removed *RemovedError
		record  *RecordError
		unread  *UnavailableError // which says more
	)
	if err == nil || errors.Is(err, ErrNoNode) || errors.Is(err, ErrConflict) || errors.As(err, &removed) || errors.As(err, &record) || errors.As(err, &unread) {
		return err
	}
	return s.failed(ctx, doing, err)
}

func (s *Store) putOnce(ctx context.Context, node, key, value string) error {
	revision, err := s.standing(ctx, node)
	if err != nil {
		return err
	}
	checkpoint.Before(steps.PutStatus)
	response, err := s.client.Txn(ctx).If(unchangedSince(nodeKey(node), revision)...).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return err
	}
	checkpoint.After(steps.PutStatus)
	if !response.Succeeded {
		return ErrConflict
	}
	return nil
}

// standing returns a revision at which the cluster had a record of a node that was not removed. The error is ErrNoNode or a *RemovedError if it has none.
func (s *Store) standing(ctx context.Context, node string) (revision int64, err error) {
	state, _, err := s.nodes.call(ctx, node)
	if err != nil {
		return 0, err
	}
	if problem := state.Damaged[nodeKey(node)]; problem != nil {
		return 0, problem
	}
	switch record := state.Nodes[node]; {
	case record == nil:
		return 0, ErrNoNode
	case record.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED:
		return 0, &RemovedError{Node: record, Generation: state.Generation}
	}
	return state.Revision, nil
}

// unchangedSince holds if a key was there at a revision, and is still as it was then.
func unchangedSince(key string, revision int64) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "!=", 0), clientv3.Compare(clientv3.ModRevision(key), "<", revision+1)}
}

// The store may take the renewPart-th part of answerWithin to renew a lease, a second by default. It takes milliseconds.
const renewPart = 5

// Beat keeps a node's heartbeat fresh for ttl from now, in whole seconds, and returns the lease by which it is. The lease is found from the node's heartbeat key, so that it does
// not matter which curator the node's last heartbeat went to. The error is ErrNoNode if there is no record of the node.
//
// known is the lease by which the heartbeat is, as far as the caller knows: then it is renewed together with others, and nothing else is asked. clientv3.NoLease: nobody knows.
func (s *Store) Beat(ctx context.Context, node string, ttl time.Duration, known clientv3.LeaseID) (lease clientv3.LeaseID, err error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	// Only a heartbeat of the same node through another curator, or the end of the lease in this moment, can be in the way.
	lease, err = backoff.Retry(bounded, func() (clientv3.LeaseID, error) {
		lease, err := s.beat(bounded, node, ttl, known)
		if err != nil && !errors.Is(err, ErrConflict) {
			err = backoff.Permanent(err)
		}
		known = clientv3.NoLease
		return lease, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxTries(tries))
	if err == nil || errors.Is(err, ErrNoNode) || errors.Is(err, ErrConflict) {
		return lease, err
	}
	return clientv3.NoLease, s.failed(ctx, "renew the heartbeat of a node", err)
}

func (s *Store) beat(ctx context.Context, node string, ttl time.Duration, known clientv3.LeaseID) (clientv3.LeaseID, error) {
	if known != clientv3.NoLease {
		if silent, err := s.renew(ctx, s.following, known); !silent && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return known, err
		}
	}
	key := heartbeatKey(node)
	stands, _, err := s.heartbeats.call(ctx, node)
	if err != nil {
		return clientv3.NoLease, err
	}
	// A lease that has expired and is not revoked yet does not answer at all: then another takes its place, and so it does of one that was tried just now.
	if stands.lease != clientv3.NoLease && stands.lease != known {
		silent, err := s.renew(ctx, s.renewing, stands.lease)
		if !silent && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return stands.lease, err
		}
	}
	value, err := encode(new(curatorv1.Heartbeat))
	if err != nil {
		return clientv3.NoLease, err
	}
	granted, err := s.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return clientv3.NoLease, err
	}
	checkpoint.Before(steps.Beat)
	response, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", stands.revision),
			clientv3.Compare(clientv3.CreateRevision(nodeKey(node)), "!=", 0)).
		Then(clientv3.OpPut(key, value, clientv3.WithLease(granted.ID))).
		Else(clientv3.OpGet(nodeKey(node), clientv3.WithKeysOnly())).Commit()
	if err != nil {
		// The lease, if it has no key, ends by itself.
		return clientv3.NoLease, err
	}
	checkpoint.After(steps.Beat)
	if response.Succeeded {
		return granted.ID, nil
	}
	// What is not used is given back; if that fails it ends by itself.
	_, _ = s.client.Revoke(ctx, granted.ID)
	if response.Responses[0].GetResponseRange().GetCount() == 0 {
		return clientv3.NoLease, ErrNoNode
	}
	return clientv3.NoLease, ErrConflict
}
