package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

const (
	// maxTransaction is how many bytes one transaction may write: etcd takes 1.5 MiB by default, keys and compares included.
	maxTransaction = 1280 << 10
	// tries is how often a write that others got in front of is tried. With jitter between, this many do not fail by bad luck.
	tries = 10
	// maxOperations is how many keys one transaction may write: etcd takes 128 by default.
	maxOperations = 128
)

// Change is the records that a management write puts in place of those that were read.
type Change struct {
	// Cluster is nil if the record that makes the cluster stays as it is.
	Cluster *curatorv1.Cluster
	Nodes   []*clusterv1.NodeRecord
	// Forgotten is the IDs of nodes whose tombstones are removed.
	Forgotten []string
	Plugins   []*clusterv1.PluginRecord
	// RemovedPlugins is the names of plugins whose records are removed.
	RemovedPlugins []string
	// Reports are the signed reports that are new in the records of plugins.
	Reports []Report
	// WipedUsers is the ConsensusUsers whose keys are to be removed as well. Those that are granted when the change is made are not.
	WipedUsers []string
	// Policy is nil if it stays as it is.
	Policy *clusterv1.ClusterPolicy
	// SnapshotTask is nil if no scheduled snapshot is asked for.
	SnapshotTask *clusterv1.SnapshotTask
	Operators    []*clusterv1.Operator
	// Revoked is the names of operators whose records are removed.
	Revoked []string
	// Tickets is made, or has changed, and RevokedTickets is the IDs of those that are removed.
	Tickets        []*curatorv1.Ticket
	RevokedTickets []string
	// Commitment is nil if no node commits itself.
	Commitment *Commitment
	// Accepted is the IDs of nodes of which the next start is taken for the node, whatever is known.
	Accepted []string
	// Authority is nil if the cluster CA stays as it is.
	Authority *AuthorityChange

	// Written is how many bytes the records have that are written for it. The store says so when it has planned that.
	Written int
}

// Call is the call of the API that a change is made for.
type Call interface {
	// Entry is what the audit log keeps of the call, if the change is made; nil: the call is not one that may change anything.
	Entry() *clusterv1.AuditEntry
	// Kept is told that the entry was written.
	Kept()
}

// Update makes one management write. It gives the records, as ReadRecords reads them, to decide, and writes the change that it returns in one
// transaction, together with the entry of the call in the audit log, if nothing was decided in between; otherwise it reads again. decide may so
// run several times; its error ends the update as it is, and a nil change too, without a write. Update returns the state that the change led to.
func (s *Store) Update(ctx context.Context, call Call, decide func(*State) (*Change, error)) (*State, error) {
	return s.update(ctx, call, nil, decide)
}

func (s *Store) update(ctx context.Context, call Call, fence *Fence, decide func(*State) (*Change, error)) (*State, error) {
	entry := call.Entry()
	if entry == nil {
		return nil, errors.New("a change is to be made that the audit log would know nothing of: this is a mistake in the curator")
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval = 5 * time.Millisecond
	pause.MaxInterval = 250 * time.Millisecond
	return backoff.Retry(ctx, func() (*State, error) {
		defer s.turn(ctx)()
		state, err := s.ReadRecords(ctx)
		if err != nil {
			if away := (*UnavailableError)(nil); errors.As(err, &away) {
				away.Unbegun = true
			}
			return nil, backoff.Permanent(err)
		}
		change, err := decide(state)
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		if change == nil {
			return state, nil
		}
		after, err := s.commit(ctx, state, change, entry, fence)
		switch {
		case err == nil:
			call.Kept()
		case !errors.Is(err, ErrConflict):
			return nil, backoff.Permanent(err)
		}
		return after, err
	}, backoff.WithBackOff(pause), backoff.WithMaxTries(tries))
}

// Preview decides like Update, from the same records and under the same limits, and writes nothing. It returns the state that the change would lead to.
func (s *Store) Preview(ctx context.Context, decide func(*State) (*Change, error)) (*State, error) {
	state, err := s.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	change, err := decide(state)
	if err != nil || change == nil {
		return state, err
	}
	after, _, err := s.plan(state, change)
	return after, err
}

// plan returns the state that a change leads to, and what is to be written for it.
func (s *Store) plan(before *State, change *Change) (*State, transaction, error) {
	change.tombstones()
	after := before.With(change)
	after.Epoch++
	var writes transaction
	writes.put(keyEpoch, &curatorv1.Epoch{Number: after.Epoch})
	if change.Cluster != nil {
		writes.put(keyCluster, change.Cluster)
	}
	for _, node := range change.Nodes {
		writes.put(nodeKey(node.GetId()), node)
		forget(&writes, before.Nodes[node.GetId()], node)
	}
	for _, id := range change.Forgotten {
		writes.delete(nodeKey(id))
	}
	for _, plugin := range change.Plugins {
		writes.put(pluginKey(plugin.GetName()), plugin)
	}
	for _, name := range change.RemovedPlugins {
		writes.delete(pluginKey(name))
	}
	change.writeReports(before, &writes)
	if change.Policy != nil {
		writes.put(keyPolicy, change.Policy)
	}
	if change.SnapshotTask != nil {
		writes.put(keySnapshotTask, change.SnapshotTask)
	}
	if !slices.Equal(after.Wiped, before.Wiped) {
		writes.put(keyWiped, &curatorv1.WipedUsers{ConsensusUsers: after.Wiped})
	}
	for _, ticket := range change.Tickets {
		writes.put(ticketKey(ticket.GetId()), ticket)
	}
	for _, id := range change.RevokedTickets {
		writes.delete(ticketKey(id))
	}
	for _, id := range change.Accepted {
		writes.delete(incarnationKey(id))
		writes.delete(refusedKey(id))
	}
	change.Commitment.write(&writes)
	change.Authority.write(&writes)
	for _, operator := range change.Operators {
		writes.put(operatorKey(operator.GetName()), operator)
	}
	for _, name := range change.Revoked {
		writes.delete(operatorKey(name))
	}
	if desired := Desired(after, s.clusterUser); !proto.Equal(desired, Desired(before, s.clusterUser)) {
		writes.put(keyDesired, desired)
	}
	change.Written = writes.bytes
	return after, writes, writes.check()
}

func (s *Store) commit(ctx context.Context, before *State, change *Change, entry *clusterv1.AuditEntry, fence *Fence) (*State, error) {
	after, writes, err := s.plan(before, change)
	if err != nil {
		return nil, err
	}
	// Not the revision of the records: they may have been known for long, and the entry would be older than what was done since.
	audit := auditKeys(s.reached.Load()).next(AuditChanges)
	writes.put(audit, entry)
	if err := writes.check(); err != nil {
		return nil, err
	}
	bounded, cancel := s.lasting(ctx)
	defer cancel()
	compares := before.stands()
	var lookup []clientv3.Op
	if fence != nil {
		compares = append(compares, fence.compare())
		lookup = append(lookup, clientv3.OpGet(fence.key))
	}
	// Nobody else has this key: if it is there, an earlier try has succeeded that was not answered.
	lookup = append(lookup, clientv3.OpGet(audit))
	step := steps.Change(entry.GetRpc())
	checkpoint.Before(step)
	response, tries, err := writeAgain(bounded, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).If(compares...).Then(writes.ops...).Else(lookup...).Commit()
	})
	if err != nil {
		return nil, s.failed(ctx, "write a change", err)
	}
	checkpoint.After(step)
	after.Revision = response.Header.GetRevision()
	switch kept := lookedUp(response); {
	case response.Succeeded:
	case tries > 1 && len(kept) > 0:
		after.Revision = kept[0].ModRevision
	default:
		if fence != nil && !fence.stands(response.Responses[0].GetResponseRange().GetKvs()) {
			return nil, ErrFenced
		}
		return nil, ErrConflict
	}
	s.reach(response.Header)
	after.epochRevision = after.Revision
	if writes.has(keyDesired) {
		after.DesiredRevision = after.Revision
	}
	s.known.Store(after)
	return after, nil
}

// lookedUp is what the last lookup of a transaction that did not succeed has found.
func lookedUp(response *clientv3.TxnResponse) []*mvccpb.KeyValue {
	if response.Succeeded {
		return nil
	}
	return response.Responses[len(response.Responses)-1].GetResponseRange().GetKvs()
}

// transaction collects what one transaction writes.
type transaction struct {
	ops   []clientv3.Op
	bytes int
	err   error
}

func (t *transaction) put(key string, record proto.Message) {
	value, err := encode(record)
	if err != nil {
		t.err = errors.Join(t.err, err)
		return
	}
	t.putText(key, value)
}

func (t *transaction) putText(key, value string) {
	t.bytes += len(key) + len(value)
	t.ops = append(t.ops, clientv3.OpPut(key, value))
}

func (t *transaction) delete(key string) {
	t.bytes += len(key)
	t.ops = append(t.ops, clientv3.OpDelete(key))
}

func (t *transaction) has(key string) bool {
	return slices.ContainsFunc(t.ops, func(op clientv3.Op) bool { return string(op.KeyBytes()) == key })
}

func (t *transaction) check() error {
	if t.err == nil && len(t.ops) > maxOperations {
		return &TooManyError{Records: len(t.ops), Limit: maxOperations}
	}
	if t.err == nil && t.bytes > maxTransaction {
		return &TooLargeError{Bytes: t.bytes, Limit: maxTransaction}
	}
	return t.err
}
