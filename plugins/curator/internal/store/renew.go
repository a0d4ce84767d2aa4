package store

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// turnsAtOnce is how many turns of one kind are under way at a time: while the store answers one, another gathers.
	turnsAtOnce = 2
	// readsPerTurn is how many nodes are read in one transaction: etcd takes 128 operations by default.
	readsPerTurn = 32
	// renewalsPerTurn is how many leases are renewed on one stream. The store renews them one after another.
	renewalsPerTurn = 128
	// gatherBeats is how long heartbeats are gathered that follow on others: they have a third of their TTL, and a stream to the store for each of them costs more than they do.
	gatherBeats = 100 * time.Millisecond
)

// readHeartbeats reads how the heartbeats of nodes stand.
func (s *Store) readHeartbeats(ctx context.Context, nodes []string) (map[string]heartbeat, error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(nodes))
	for _, node := range nodes {
		ops = append(ops, clientv3.OpGet(heartbeatKey(node)))
	}
	response, err := readAgain(bounded, s.client, ops...)
	if err != nil {
		return nil, err
	}
	found := make(map[string]heartbeat, len(nodes))
	for i, node := range nodes {
		for _, kv := range response.Responses[i].GetResponseRange().GetKvs() {
			found[node] = heartbeat{revision: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}
		}
	}
	return found, nil
}

// heartbeat is how that of a node stands: the revision at which it was last written, and the lease by which it goes.
type heartbeat struct {
	revision int64
	lease    clientv3.LeaseID
}

// renewals renews leases on one stream, which ends with it. A lease that has no answer in that part of the time has none: one that has expired and is not revoked yet keeps the
// store from answering for those behind it too.
func (s *Store) renewals(ctx context.Context, leases []clientv3.LeaseID) (map[clientv3.LeaseID]error, error) {
	answers := make(map[clientv3.LeaseID]error, len(leases))
	if s.leases == nil {
		return answers, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.answerWithin/renewPart)
	defer cancel()
	stream, err := s.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return answers, nil // each finds out by itself why
	}
	for _, lease := range leases {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil {
			break // Recv says why
		}
	}
	if err := stream.CloseSend(); err != nil {
		return answers, nil
	}
	for range leases {
		answer, err := stream.Recv()
		if err != nil {
			break
		}
		answers[clientv3.LeaseID(answer.GetID())] = nil
		if answer.GetTTL() <= 0 {
			answers[clientv3.LeaseID(answer.GetID())] = rpctypes.ErrLeaseNotFound
		}
	}
	return answers, nil
}

// renew keeps a lease alive, together with others. silent says that the store did not answer in time, as for a lease that has expired and is not revoked yet.
func (s *Store) renew(ctx context.Context, with *together[clientv3.LeaseID, error], lease clientv3.LeaseID) (silent bool, err error) {
	if err, is, failed := with.call(ctx, lease); failed == nil && is {
		return false, err
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	// By itself: it, or one in front of it, was not answered.
	renewing, cancel := context.WithTimeout(ctx, s.answerWithin/renewPart)
	defer cancel()
	_, err = s.client.KeepAliveOnce(renewing, lease)
	return renewing.Err() != nil && ctx.Err() == nil, err
}

// readNodes reads what says who nodes are.
func (s *Store) readNodes(ctx context.Context, nodes []string) (map[string]*State, error) {
	ops := []clientv3.Op{clientv3.OpGet(keyCluster), clientv3.OpGet(keyCertificates), clientv3.OpGet(keyGeneration)}
	for _, id := range nodes {
		ops = append(ops, clientv3.OpGet(nodeKey(id)), clientv3.OpGet(incarnationKey(id)), clientv3.OpGet(refusedKey(id)))
	}
	bounded, cancel := s.patiently(ctx)
	defer cancel()
	response, err := readAgain(bounded, s.client, ops...)
	if err != nil {
		return nil, s.failed(ctx, "read the records of nodes", err)
	}
	s.reach(response.Header)
	found := make(map[string]*State, len(nodes))
	for i, id := range nodes {
		state := newState(response.Header.GetRevision())
		for _, at := range []int{0, 1, 2, 3 + 3*i, 4 + 3*i, 5 + 3*i} {
			for _, kv := range response.Responses[at].GetResponseRange().GetKvs() {
				state.put(kv)
			}
		}
		found[id] = state
	}
	return found, nil
}
