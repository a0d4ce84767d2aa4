package server_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
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

// Whoever may call cannot push out of the log what they did before, neither by asking nor by being refused, and what others did even less. What has no entry of its own is counted, and no kind of
// call is left out for another.
func TestNobodyPushesOutTheirTraces(t *testing.T) {
	c := newClusterOn(t, etcd, func(config *server.Config) { config.ProvenBurst, config.ProvenEvery = 5, time.Hour })
	operator := c.addOperator("vera", roleViewer)
	vera, ctx := operator.client(), t.Context()
	refused := func(role string) {
		_, err := vera.AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: role})
		wantCode(t, err, codes.PermissionDenied)
	}
	list := func() {
		if _, err := vera.ListNodes(ctx, &clusterv1.ListNodesRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	refused("first")
	const calls = 20
	for range calls {
		list()
		refused("more")
	}
	// What hides among them, and more of them.
	_, err := vera.RevokeOperator(ctx, &clusterv1.RevokeOperatorRequest{Name: "olga"})
	wantCode(t, err, codes.PermissionDenied)
	if _, err := vera.ListAudit(ctx, &clusterv1.ListAuditRequest{}); err != nil {
		t.Fatal(err)
	}
	list()
	refused("more")
	c.loginWith(selfSigned(t, operator.key), &clusterv1.LoginRequest{})
	// Others have their own.
	if _, err := c.asOwner().ListNodes(ctx, &clusterv1.ListNodesRequest{}); err != nil {
		t.Fatal(err)
	}
	// What is left out is written at the end.
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	entries, counted := make(map[string]int), make(map[string]uint64)
	all := append(c.entries(store.AuditCalls), c.entries(store.AuditRefused)...)
	for _, entry := range all {
		entries[entry.GetCaller()+" "+entry.GetRpc()]++
		counted[entry.GetCaller()+" "+entry.GetRpc()] += 1 + entry.GetSuppressed()
	}
	for kind, want := range map[string]struct {
		entries int
		calls   uint64
	}{
		"operator vera ListNodes":      {5 + 1 + 1, calls + 1}, // the budget, what is kept of each kind, and the one for all others
		"operator vera AddRole":        {5 + 1 + 1, 1 + calls + 1},
		"operator vera RevokeOperator": {1, 1},
		"operator vera ListAudit":      {1, 1},
		"owner ListNodes":              {1, 1},
	} {
		if entries[kind] != want.entries || counted[kind] != want.calls {
			t.Errorf("%s: %d entries for %d calls, want %d for %d", kind, entries[kind], counted[kind], want.entries, want.calls)
		}
	}
	if entries["operator vera Login"] != 2 {
		t.Errorf("%d entries say that vera has logged in", entries["operator vera Login"])
	}
	if first := c.entries(store.AuditRefused)[0]; first.GetParameters()["role"] != "first" || first.GetSuppressed() != 0 {
		t.Errorf("the first that was refused: %s", told(first))
	}
}

// Who got an identity is in the log, also a node. That it was renewed is not: a large cluster would push out all of it within minutes.
func TestIssuedIdentitiesAreAudited(t *testing.T) {
	c := newCluster(t)
	if _, err := c.asNode().IssueSVID(t.Context(), &clusterv1.IssueSVIDRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: csr(t, newKey(t))}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: csr(t, newKey(t))}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.asNode().IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "lighthouse", CertificateRequest: csr(t, newKey(t))})
	wantCode(t, err, codes.NotFound)
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, entry := range c.entries(store.AuditIssued) {
		said = append(said, strings.TrimPrefix(told(entry), "node "+c.id+" (NODE): "))
	}
	if want := []string{"IssueRoleSVID(role=store): OK", "IssueRoleSVID(role=lighthouse): NotFound"}; !slices.Equal(said, want) {
		t.Errorf("kept: %q, want %q", said, want)
	}
}

// Who asks for the identities of a node from elsewhere shows, although those that the node got live, and however many it asks for itself.
func TestIdentitiesIssuedElsewhereAreAudited(t *testing.T) {
	c := newClusterOn(t, etcd, func(config *server.Config) { config.ProvenBurst, config.ProvenEvery = 1, time.Hour })
	there := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	node, thief := c.asNode(), clusterv1.NewNodeServiceClient(c.dial(c.curator, c.svid, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return there.DialContext(ctx, "tcp", address)
	})))
	ask := func(as clusterv1.NodeServiceClient) {
		t.Helper()
		for range 2 {
			if _, err := as.IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: "store", CertificateRequest: csr(t, newKey(t))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What else the node asks for takes up its budget.
	for _, role := range []string{"none", "none"} {
		_, err := node.IssueRoleSVID(t.Context(), &clusterv1.IssueRoleSVIDRequest{Role: role, CertificateRequest: csr(t, newKey(t))})
		wantCode(t, err, codes.NotFound)
	}
	ask(node)
	ask(thief)
	ask(node)
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	var from []string
	for _, entry := range c.entries(store.AuditIssued) {
		if entry.GetCode() == "OK" {
			from = append(from, audit.Network(entry.GetAddress()))
		}
	}
	if want := []string{"127.0.0.1", "127.0.0.2", "127.0.0.1"}; !slices.Equal(from, want) {
		t.Errorf("it is kept that identities were asked for from %q, want %q", from, want)
	}
}
