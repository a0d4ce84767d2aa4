package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// AuditShelf is a part of the audit log with a bound of its own, so that those who may only ask, and those who may nothing, cannot push out what is
// kept of those who changed something.
type AuditShelf string

const (
	// AuditChanges holds the calls that changed something. Only Update writes to it.
	AuditChanges AuditShelf = "change"
	// AuditCalls holds the calls of callers who have proved who they are that were answered and changed nothing, AuditRefused those that were refused.
	AuditCalls   AuditShelf = "call"
	AuditRefused AuditShelf = "refused"
	// AuditIssued holds the calls by which nodes got identities, and tried to.
	AuditIssued AuditShelf = "issued"
	// AuditUnproven holds the calls of those who have not.
	AuditUnproven AuditShelf = "unproven"
)

// AuditShelves is all of them.
var AuditShelves = []AuditShelf{AuditChanges, AuditCalls, AuditRefused, AuditIssued, AuditUnproven}

// Most is how many entries a shelf holds at most: together 10,000, some months of an operator's changes and days of a program's polling.
func (s AuditShelf) Most() int {
	switch s {
	case AuditChanges:
		return 5000
	case AuditCalls:
		return 2000
	}
	return 1000
}

func (s AuditShelf) prefix() string { return prefixAudit + string(s) + "/" }

// AuditBatch is how many entries one transaction writes at most: etcd takes 128 operations by default.
const AuditBatch = 100

// auditReaders is how many may read the log at once. The store takes all of it into its memory to find the newest of it, some ten megabytes, and whoever
// may only read must not have it do so a thousand times at the same moment.
const auditReaders = 2

// AuditRecord is an entry with the shelf that it belongs to.
type AuditRecord struct {
	Shelf AuditShelf
	Entry *clusterv1.AuditEntry
}

// auditNamer names the entries of one transaction.
type auditNamer struct {
	common string
	n      int
}

// auditKeys returns the names for entries that are written after a revision: the revision, something that no other transaction has, and the place
// in the transaction. So the keys of a shelf are sorted by age, but for what was written at the same moment, and no clock has a say in what is old.
func auditKeys(after int64) *auditNamer {
	unique := make([]byte, 8)
	_, _ = rand.Read(unique) // never fails
	return &auditNamer{common: fmt.Sprintf("%016x-%s", after, hex.EncodeToString(unique))}
}

func (a *auditNamer) next(shelf AuditShelf) string {
	a.n++
	return fmt.Sprintf("%s%s-%02d", shelf.prefix(), a.common, a.n-1)
}

// AppendAudit writes up to AuditBatch entries of calls that changed nothing, in one transaction. Their sequence numbers are given by the store:
// see ListAudit. The error is ErrNoCluster if there is no cluster.
func (s *Store) AppendAudit(ctx context.Context, records []AuditRecord) error {
	if s.reached.Load() == 0 {
		// What is written after nothing would be taken for the oldest.
		if _, err := s.Probe(ctx); err != nil {
			return err
		}
	}
	var writes transaction
	keys := auditKeys(s.reached.Load())
	for _, record := range records {
		writes.put(keys.next(record.Shelf), record.Entry)
	}
	if err := writes.check(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	// A store without a cluster must stay empty, or none could be made in it.
	checkpoint.Before(steps.AppendAudit)
	response, err := s.client.Txn(bounded).If(clientv3.Compare(clientv3.CreateRevision(keyCluster), "!=", 0)).Then(writes.ops...).Commit()
	if err != nil {
		return s.failed(ctx, "write to the audit log", err)
	}
	checkpoint.After(steps.AppendAudit)
	s.reach(response.Header)
	if !response.Succeeded {
		return ErrNoCluster
	}
	return nil
}

// ListAudit returns up to limit entries, the newest first, and whether there are older ones. If before is not 0, only entries with a lower sequence
// number are returned.
//
// The sequence number is made of the store's revision that wrote the entry, times AuditBatch, and the entry's place in that transaction. The store
// gives out its revisions in one order to all curators, without any of them having to wait for another one, and they survive restarts.
func (s *Store) ListAudit(ctx context.Context, before uint64, limit int) (entries []*clusterv1.AuditEntry, more bool, err error) {
	options := []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
		// The store returns what one transaction wrote in any order, and a page may begin and end in the midst of one. With two more of them, what is
		// cut off is none of the page.
		clientv3.WithLimit(int64(limit + 2*AuditBatch)),
	}
	if before > 0 {
		newest := int64(before / AuditBatch)
		if newest <= 0 {
			return nil, false, nil // no entry has a number as low as that
		}
		options = append(options, clientv3.WithMaxCreateRev(newest))
	}
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-bounded.Done():
		return nil, false, s.failed(ctx, "read the audit log, which many others do at the same time", bounded.Err())
	}
	got, err := s.client.Get(bounded, prefixAudit, options...)
	if err != nil {
		return nil, false, s.failed(ctx, "read the audit log", err)
	}
	for _, kv := range got.Kvs {
		if entry := auditEntry(string(kv.Key), kv.Value, kv.CreateRevision); before == 0 || entry.GetSequence() < before {
			entries = append(entries, entry)
		}
	}
	slices.SortFunc(entries, func(a, b *clusterv1.AuditEntry) int { return cmp.Compare(b.GetSequence(), a.GetSequence()) })
	if more = got.More; len(entries) > limit {
		entries, more = entries[:limit], true
	}
	return entries, more, nil
}

// auditEntry reads what is kept at a key. One that cannot be read is not kept back: that there is something is worth knowing.
func auditEntry(key string, value []byte, revision int64) *clusterv1.AuditEntry {
	entry := new(clusterv1.AuditEntry)
	if err := proto.Unmarshal(value, entry); err != nil {
		entry = &clusterv1.AuditEntry{Time: new(timestamppb.Timestamp), Caller: "unknown", Reason: "this entry of the audit log is damaged"}
	}
	place, err := strconv.ParseUint(key[strings.LastIndexByte(key, '-')+1:], 10, 64)
	if err != nil || place >= AuditBatch {
		place = 0
	}
	entry.Sequence = uint64(revision)*AuditBatch + place
	return entry
}

// TrimAudit removes entries of a shelf if there are nearly as many as it holds, so many that it need not be called soon again: it keeps nine tenths. Those go that are the oldest of the call
// by the caller of which there are the most, so that nobody can push out what others did, nor one kind of call by another. It returns how many were removed.
func (s *Store) TrimAudit(ctx context.Context, shelf AuditShelf) (removed int64, err error) {
	bounded, cancel := context.WithTimeout(ctx, s.answerWithin)
	defer cancel()
	count, err := s.client.Get(bounded, shelf.prefix(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, s.failed(ctx, "count the audit log", err)
	}
	most := shelf.Most()
	if count.Count <= int64(most*95/100) {
		return 0, nil
	}
	all, err := s.client.Get(bounded, shelf.prefix(), clientv3.WithPrefix())
	if err != nil {
		return 0, s.failed(ctx, "read the audit log for the oldest of it", err)
	}
	checkpoint.Before(steps.TrimAudit)
	// By their keys: another curator may be doing the same.
	for keys := range slices.Chunk(excess(all.Kvs, most*90/100), AuditBatch) {
		ops := make([]clientv3.Op, 0, len(keys))
		for _, key := range keys {
			ops = append(ops, clientv3.OpDelete(key))
		}
		deleted, err := s.client.Txn(bounded).Then(ops...).Commit()
		if err != nil {
			return removed, s.failed(ctx, "remove the oldest of the audit log", err)
		}
		for _, response := range deleted.Responses {
			removed += response.GetResponseDeleteRange().GetDeleted()
		}
	}
	checkpoint.After(steps.TrimAudit)
	return removed, nil
}

// excess returns the keys of those of the entries of a shelf that go, so that so many stay. The entries are sorted by age.
func excess(entries []*mvccpb.KeyValue, stay int) (keys []string) {
	type kind struct{ by, rpc string }
	of := make(map[kind][]string)
	for _, kv := range entries {
		entry := new(clusterv1.AuditEntry)
		_ = proto.Unmarshal(kv.Value, entry) // one that is damaged is nobody's
		by := entry.GetCaller()
		// Of nodes, and of machines that come, there may be any number.
		if kind := entry.GetKind(); kind == clusterv1.Caller_CALLER_NODE || kind == clusterv1.Caller_CALLER_NEWCOMER {
			by = kind.String()
		}
		which := kind{by, entry.GetRpc()}
		of[which] = append(of[which], string(kv.Key))
	}
	for range len(entries) - stay {
		var most kind
		for which, its := range of {
			if best := of[most]; len(its) > len(best) || len(its) == len(best) && len(its) > 0 && its[0] < best[0] {
				most = which
			}
		}
		keys = append(keys, of[most][0])
		of[most] = of[most][1:]
	}
	return keys
}
