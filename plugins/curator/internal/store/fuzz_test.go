package store_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

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
