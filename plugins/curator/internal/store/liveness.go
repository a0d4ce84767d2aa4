package store

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// PutStatus replaces what a node last reported of itself. The error is ErrNoNode if there is no record of the node.
func (s *Store) PutStatus(ctx context.Context, status *clusterv1.NodeStatus) error {
	value, err := encode(status)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	response, err := s.client.Txn(bounded).
		If(clientv3.Compare(clientv3.CreateRevision(nodeKey(status.GetNodeId())), "!=", 0)).
		Then(clientv3.OpPut(statusKey(status.GetNodeId()), value)).Commit()
	if err != nil {
		return s.failed(ctx, "write the status of a node", err)
	}
	if !response.Succeeded {
		return ErrNoNode
	}
	return nil
}

// The store may take the renewPart-th part of answerWithin to renew a lease, a second by default. It takes milliseconds.
const renewPart = 5

// Beat keeps a node's heartbeat fresh for ttl from now, in whole seconds. The lease is found from the node's heartbeat key, so that it does
// not matter which curator the node's last heartbeat went to. The error is ErrNoNode if there is no record of the node.
func (s *Store) Beat(ctx context.Context, node string, ttl time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	// Only a heartbeat of the same node through another curator, or the end of the lease in this moment, can be in the way.
	_, err := backoff.Retry(bounded, func() (struct{}, error) {
		err := s.beat(bounded, node, ttl)
		if err != nil && !errors.Is(err, ErrConflict) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxTries(tries))
	if err == nil || errors.Is(err, ErrNoNode) || errors.Is(err, ErrConflict) {
		return err
	}
	return s.failed(ctx, "renew the heartbeat of a node", err)
}

func (s *Store) beat(ctx context.Context, node string, ttl time.Duration) error {
	key := heartbeatKey(node)
	got, err := s.client.Get(ctx, key)
	if err != nil {
		return err
	}
	seen := int64(0)
	if len(got.Kvs) > 0 {
		seen = got.Kvs[0].ModRevision
		if lease := clientv3.LeaseID(got.Kvs[0].Lease); lease != clientv3.NoLease {
			renewing, cancel := context.WithTimeout(ctx, s.answerWithin/renewPart)
			_, err := s.client.KeepAliveOnce(renewing, lease)
			// A lease that has expired and is not revoked yet does not answer at all: then another takes its place.
			silent := renewing.Err() != nil && ctx.Err() == nil
			cancel()
			if !silent && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return err
			}
		}
	}
	value, err := encode(new(curatorv1.Heartbeat))
	if err != nil {
		return err
	}
	granted, err := s.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return err
	}
	response, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", seen),
			clientv3.Compare(clientv3.CreateRevision(nodeKey(node)), "!=", 0)).
		Then(clientv3.OpPut(key, value, clientv3.WithLease(granted.ID))).
		Else(clientv3.OpGet(nodeKey(node), clientv3.WithKeysOnly())).Commit()
	if err != nil {
		// The lease, if it has no key, ends by itself.
		return err
	}
	if response.Succeeded {
		return nil
	}
	// What is not used is given back; if that fails it ends by itself.
	_, _ = s.client.Revoke(ctx, granted.ID)
	if response.Responses[0].GetResponseRange().GetCount() == 0 {
		return ErrNoNode
	}
	return ErrConflict
}
