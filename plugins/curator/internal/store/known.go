package store

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ReadRecords reads what decisions are made of: cluster, CA, all nodes, the catalog, the policy and the operators, without statuses and heartbeats. The error
// is ErrNoCluster if there is no cluster.
//
// It is a linearizable read. Where this curator knows the records already, because it has read or written them, the store is asked whether they stand, by the very compares
// that a change is made under, and sends them only if they do not: a thousand nodes that register are a thousand records that are read for each of them otherwise. The
// state has then the revision at which the records were known.
func (s *Store) ReadRecords(ctx context.Context) (*State, error) {
	const doing = "read the cluster's records"
	gets := []clientv3.Op{
		clientv3.OpGet(keyCluster), clientv3.OpGet(keyCertificates), clientv3.OpGet(keyEpoch),
		clientv3.OpGet(prefixNodes, clientv3.WithPrefix()), clientv3.OpGet(prefixPlugins, clientv3.WithPrefix()),
		clientv3.OpGet(prefixOperators, clientv3.WithPrefix()), clientv3.OpGet(keyPolicy), clientv3.OpGet(keyWiped),
		clientv3.OpGet(prefixTickets, clientv3.WithPrefix()),
		clientv3.OpGet(keyStoreState), clientv3.OpGet(keyDesired),
		clientv3.OpGet(keySnapshotTask), clientv3.OpGet(keyGeneration),
	}
	known := s.known.Load()
	if known == nil {
		state, err := whole(s.read(ctx, doing, gets...))
		if err == nil {
			s.known.CompareAndSwap(nil, state)
		}
		return state, err
	}
	bounded, cancel := s.patiently(ctx)
	defer cancel()
	response, err := readAgainUnless(bounded, s.client, known.stands(), gets...)
	if err != nil {
		return nil, s.failed(ctx, doing, err)
	}
	s.reach(response.Header)
	if response.Succeeded {
		return known, nil
	}
	state, err := whole(stateOf(response), nil)
	if err == nil {
		// If others have taken note of something meanwhile, theirs is as good: what does not stand is never returned.
		s.known.CompareAndSwap(known, state)
	}
	return state, err
}

// stands are the compares that hold as long as nothing of the records has changed since a revision.
func (s *State) stands() []clientv3.Cmp {
	return []clientv3.Cmp{
		// Whoever writes one of the records writes the epoch too (commit), so they are not compared: a store compares a prefix by reading all that is below it, on each of its members.
		// A store that was put back to an earlier revision has an earlier epoch.
		clientv3.Compare(clientv3.ModRevision(keyEpoch), "=", s.epochRevision),
		// The consensus role writes these, and knows nothing of the epoch.
		clientv3.Compare(clientv3.ModRevision(keyStoreState), "<", s.Revision+1),
		clientv3.Compare(clientv3.ModRevision(keyGeneration), "<", s.Revision+1),
		// A deleted key has the revision 0, which is less than any.
		clientv3.Compare(clientv3.CreateRevision(keyCluster), "!=", 0),
		clientv3.Compare(clientv3.CreateRevision(keyEpoch), "!=", 0),
	}
}
