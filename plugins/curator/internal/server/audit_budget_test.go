package server_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// entries are those of a shelf of the audit log, the oldest first.
func (c *cluster) entries(shelf store.AuditShelf) (entries []*clusterv1.AuditEntry) {
	c.t.Helper()
	got, err := c.client().Get(c.t.Context(), "audit/"+string(shelf)+"/", clientv3.WithPrefix())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		entry := new(clusterv1.AuditEntry)
		if err := proto.Unmarshal(kv.Value, entry); err != nil {
			c.t.Fatal(err)
		}
		entries = append(entries, entry)
	}
	return entries
}

// Whoever may call cannot push out of the log what they did before, neither by asking nor by being refused, and what others did even less. What has no entry is counted.
func TestNobodyPushesOutTheirTraces(t *testing.T) {
	c := newClusterOn(t, etcd, func(config *server.Config) { config.ProvenBurst, config.ProvenEvery = 5, time.Second })
	vera, ctx := c.addOperator("vera", roleViewer).client(), t.Context()
	_, err := vera.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "first"})
	wantCode(t, err, codes.PermissionDenied)
	const calls = 60
	for range calls {
		if _, err := vera.ListNodes(ctx, &clusterv1.ListNodesRequest{}); err != nil {
			t.Fatal(err)
		}
		_, err := vera.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "more"})
		wantCode(t, err, codes.PermissionDenied)
	}
	// Others have their own.
	if _, err := c.asOwner().ListNodes(ctx, &clusterv1.ListNodesRequest{}); err != nil {
		t.Fatal(err)
	}
	for ctx := inTime(t); ; {
		asked, refused := c.entries(store.AuditCalls), c.entries(store.AuditRefused)
		counted := make(map[string]uint64)
		for _, entry := range append(asked, refused...) {
			counted[entry.GetCaller()+" "+entry.GetRpc()] += 1 + entry.GetSuppressed()
		}
		if counted["operator vera ListNodes"] == calls && counted["operator vera AddRole"] == calls+1 && counted["owner ListNodes"] == 1 {
			if len(asked)+len(refused) > calls {
				t.Errorf("%d entries for %d calls", len(asked)+len(refused), 2*calls)
			}
			if first := refused[0]; first.GetParameters()["role"] != "first" || first.GetSuppressed() != 0 {
				t.Errorf("the first that was refused: %s", told(first))
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("counted: %v", counted)
		}
	}
}

// Who got an identity is in the log, also a node.
func TestIssuedIdentitiesAreAudited(t *testing.T) {
	c := newCluster(t)
	if _, err := c.asNode().IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: csr(t, newKey(t))}); err != nil {
		t.Fatal(err)
	}
	_, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "lighthouse", CertificateRequest: csr(t, newKey(t))})
	wantCode(t, err, codes.NotFound)
	for ctx := inTime(t); ; {
		var said []string
		for _, entry := range c.entries(store.AuditIssued) {
			said = append(said, told(entry))
		}
		if len(said) == 3 {
			for i, want := range []string{"IssueSVID(): OK", "IssueRoleSVID(role=store): OK", "IssueRoleSVID(role=lighthouse): NotFound"} {
				if said[i] != "node "+c.id+" (NODE): "+want {
					t.Errorf("entry %d: %s", i, said[i])
				}
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("kept: %q", said)
		}
	}
}
