package store_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// FuzzDecode reads whatever may lie at a key: what is accepted is about that key, and is written as something that reads the same.
func FuzzDecode(f *testing.F) {
	first := genesis(f)
	for key, record := range map[string]proto.Message{
		"cluster": first.Cluster, "authority/certificates": first.CA, "nodes/" + first.Node.GetId(): first.Node,
		"plugins/curator": first.Plugins[1], "status/a": &clusterv1.NodeStatus{NodeId: "a"}, "heartbeat/a": first.Key,
		"operators/alice": operator(f, "alice"), "policy": &clusterv1.ClusterPolicy{Generation: 2}, "wiped": &curatorv1.WipedUsers{ConsensusUsers: []string{"beam"}},
		"tickets/0123456789abcdef": &curatorv1.Ticket{Id: "0123456789abcdef", SecretSha256: make([]byte, 32), Expires: timestamppb.Now()},
		"incarnations/a":           &curatorv1.KnownIncarnation{Number: 1, Nonce: make([]byte, 16)}, "refused/a": &curatorv1.RefusedIncarnation{Number: 1},
		"cuk/a":           &curatorv1.UnlockKey{Cuk: make([]byte, 32)},
		"consensus/state": &consensusv1.StoreState{DesiredRevision: 7, Members: []*consensusv1.StoreStateMember{{NodeId: first.Node.GetId(), MemberId: "8e9e05c52164694d", Healthy: true}}},
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
		if ticket, ok := record.(*curatorv1.Ticket); ok && (ticket.GetId() != strings.TrimPrefix(key, "tickets/") || len(ticket.GetSecretSha256()) != 32) {
			t.Fatalf("the record at %q is about %v", key, ticket)
		}
		if strings.HasPrefix(key, "cuk/") {
			t.Fatal("the key of a volume is part of the state")
		}
		if operator, ok := record.(*clusterv1.Operator); ok && (operator.GetName() != strings.TrimPrefix(key, "operators/") || len(operator.GetPublicKey()) != 32) {
			t.Fatalf("the record at %q is about %v", key, operator)
		}
		if told, ok := record.(*consensusv1.StoreState); ok {
			seen := make(map[string]bool)
			for _, member := range told.GetMembers() {
				if id := member.GetNodeId(); id != "" && seen[id] {
					t.Fatalf("a node with two members was let through: %v", told)
				}
				seen[member.GetNodeId()] = true
			}
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
