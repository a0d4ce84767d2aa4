package store_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// FuzzDecode reads whatever may lie at a key: what is accepted is about that key, and is written as something that reads the same.
func FuzzDecode(f *testing.F) {
	first := genesis(f)
	for key, record := range map[string]proto.Message{
		"cluster": first.Cluster, "authority/certificates": first.CA, "nodes/" + first.Node.GetId(): first.Node,
		"plugins/curator": first.Plugins[1], "status/a": &clusterv1.NodeStatus{NodeId: "a"}, "heartbeat/a": first.Key,
		"operators/alice": operator(f, "alice"), "policy": &clusterv1.ClusterPolicy{Generation: 2}, "wiped": &curatorv1.WipedUsers{ConsensusUsers: []string{"beam"}},
	} {
		value, err := store.Encode(record)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(key, []byte(value))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		record, err := store.Decode(key, value)
		if err != nil {
			var damaged *store.RecordError
			if !errors.As(err, &damaged) || damaged.Key != key {
				t.Fatalf("the error does not name the key: %v", err)
			}
			return
		}
		if record == nil {
			return
		}
		if node, ok := record.(*clusterv1.NodeRecord); ok {
			if id := strings.TrimPrefix(key, "nodes/"); node.GetId() != id || identity.NodeID(node.GetPublicKey()) != id {
				t.Fatalf("the record at %q is about %q", key, node.GetId())
			}
		}
		if operator, ok := record.(*clusterv1.Operator); ok && (operator.GetName() != strings.TrimPrefix(key, "operators/") || len(operator.GetPublicKey()) != 32) {
			t.Fatalf("the record at %q is about %v", key, operator)
		}
		again, err := store.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		reread, err := store.Decode(key, []byte(again))
		if err != nil || !proto.Equal(record, reread) {
			t.Fatalf("%v was written and read as %v, %v", record, reread, err)
		}
	})
}

// FuzzAuditEntry reads whatever may lie in the audit log: there is always an entry, and its number is of the transaction that wrote it.
func FuzzAuditEntry(f *testing.F) {
	value, err := store.Encode(&clusterv1.AuditEntry{Rpc: "AddRole", Caller: "owner", Parameters: map[string]string{"role": "a"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("audit/change/00000000000000ff-0011223344556677-07", []byte(value), int64(256))
	f.Add("audit/call/x", []byte("\xff"), int64(1))
	f.Fuzz(func(t *testing.T, key string, value []byte, revision int64) {
		if revision <= 0 || revision > 1<<50 {
			t.Skip()
		}
		entry := store.AuditEntry(key, value, revision)
		if entry == nil || entry.GetSequence()/store.AuditBatch != uint64(revision) {
			t.Fatalf("%q at %d is %v", key, revision, entry)
		}
	})
}
