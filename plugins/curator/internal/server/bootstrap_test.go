package server_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/bootstrap"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

func TestBootstrap(t *testing.T) {
	c := newCluster(t)
	got, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: c.id})
	if err != nil {
		t.Fatal(err)
	}
	want := &clusterv1.NodeRecord{
		Id: c.id, PublicKey: public(c.node), State: clusterv1.NodeState_NODE_STATE_UP, Labels: map[string]string{"rack": "1"}, Generation: 1,
		Roles: []*clusterv1.RoleAssignment{
			{Role: "api", Configuration: `{"listen": "127.0.0.1:0"}`, Generation: 1}, {Role: "store", Generation: 1},
		},
		Created: got.GetNode().GetRecord().GetCreated(),
	}
	if diff := cmp.Diff(want, got.GetNode().GetRecord(), protocmp.Transform()); diff != "" {
		t.Errorf("record: %s", diff)
	}
	if want.Created == nil {
		t.Error("the record has no time")
	}
	plugins, err := c.asOwner().ListPlugins(t.Context(), &clusterv1.ListPluginsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i, plugin := range c.request().GetPlugins() {
		stored := plugins.GetPlugins()[i]
		plugin.Generation, plugin.Added, plugin.Genesis, plugin.Decided = 1, stored.GetAdded(), true, remit.Wanted(plugin.GetManifest())
		if diff := cmp.Diff(plugin, stored, protocmp.Transform()); diff != "" {
			t.Errorf("plugin: %s", diff)
		}
	}
	info, err := c.asOwner().GetClusterInfo(t.Context(), &clusterv1.GetClusterInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantInfo := &clusterv1.GetClusterInfoResponse{
		ClusterId: clusterID, TrustDomain: clusterID + ".reeve", CaCertificates: c.ca, OwnerPublicKey: public(c.owner), Nodes: 1,
	}
	if diff := cmp.Diff(wantInfo, info, protocmp.Transform()); diff != "" {
		t.Errorf("cluster info: %s", diff)
	}
	document, err := c.client().Get(t.Context(), consensusv1.DesiredStateKey)
	if err != nil || len(document.Kvs) != 1 {
		t.Fatalf("desired state: %v, %v", document, err)
	}
	desired := new(consensusv1.DesiredState)
	if err := proto.Unmarshal(document.Kvs[0].Value, desired); err != nil {
		t.Fatal(err)
	}
	wantDesired := &consensusv1.DesiredState{Users: []*consensusv1.DesiredUser{{ConsensusUser: "beam", Role: "lighthouse"}}, Members: []string{c.id}}
	if diff := cmp.Diff(wantDesired, desired, protocmp.Transform()); diff != "" {
		t.Errorf("desired state: %s", diff)
	}
}

// A core that lost the answer asks again, and gets the same cluster with a new SVID.
func TestBootstrapAgain(t *testing.T) {
	c := newCluster(t)
	before, err := c.client().Get(t.Context(), "epoch")
	if err != nil {
		t.Fatal(err)
	}
	again := c.request()
	again.Labels = map[string]string{"rack": "2"} // what is not who they are is not compared
	response, err := c.curator.service.Bootstrap(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.ca, response.GetCaCertificates()); diff != "" {
		t.Errorf("the CA changed: %s", diff)
	}
	leaf, err := x509.ParseCertificate(response.GetNodeSvid()[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://"+clusterID+".reeve/node/"+c.id {
		t.Errorf("SVID for %v", leaf.URIs)
	}
	if string(response.GetNodeSvid()[0]) == string(c.svid.Certificate[0]) {
		t.Error("the SVID is the old one")
	}
	after, err := c.client().Get(t.Context(), "epoch")
	if err != nil || after.Kvs[0].ModRevision != before.Kvs[0].ModRevision {
		t.Errorf("something was written: %v", err)
	}
}

func TestBootstrapOfAnother(t *testing.T) {
	c := newCluster(t)
	tests := map[string]struct {
		change func(*clusterv1.BootstrapRequest)
		says   []string
	}{
		"cluster ID": {func(r *clusterv1.BootstrapRequest) { r.ClusterId = "other" }, []string{clusterID, "cluster ID", "other"}},
		"node key":   {func(r *clusterv1.BootstrapRequest) { r.NodePublicKey = public(newKey(t)) }, []string{"first node", c.id}},
		"owner key":  {func(r *clusterv1.BootstrapRequest) { r.OwnerPublicKey = public(newKey(t)) }, []string{"owner key"}},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			request := c.request()
			test.change(request)
			_, err := c.curator.service.Bootstrap(t.Context(), request)
			wantCode(t, err, codes.AlreadyExists, test.says...)
		})
	}
}

// TestBootstrapRecipient holds that a cluster knows the recovery key of its first node's parameters, to which snapshots of the store are sealed.
func TestBootstrapRecipient(t *testing.T) {
	const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	service := bootstrap.NewService(time.Now)
	records := store.New(store.Config{Client: etcd.Client(t, etcd.NewPrefix()), ClusterUser: "curator", AnswerWithin: patience})
	service.Attach(records, nil)
	asked := request(newKey(t), newKey(t))
	asked.RecoveryRecipient = "age1nobody"
	_, err := service.Bootstrap(t.Context(), asked)
	wantCode(t, err, codes.InvalidArgument, "recovery_recipient", "age1")
	asked.RecoveryRecipient = recipient
	if _, err := service.Bootstrap(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	state, err := records.ReadAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &clusterv1.ClusterPolicy{Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, Generation: 1, RecoveryRecipient: recipient}
	if diff := cmp.Diff(want, state.Demands(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Of cores that make a cluster at the same time, through several curators, one makes it and those that mean the same get it too.
func TestConcurrentBootstraps(t *testing.T) {
	prefix := etcd.NewPrefix()
	owner, nodes := newKey(t), []*clusterv1.BootstrapRequest{}
	for range 2 {
		nodes = append(nodes, request(newKey(t), owner))
	}
	type outcome struct {
		node int
		ca   string
		err  error
	}
	outcomes := make([]outcome, 8)
	var group sync.WaitGroup
	for i := range outcomes {
		service := bootstrap.NewService(time.Now)
		service.Attach(store.New(store.Config{Client: etcd.Client(t, prefix), ClusterUser: "curator", AnswerWithin: patience}), nil)
		group.Go(func() {
			response, err := service.Bootstrap(t.Context(), nodes[i%2])
			outcomes[i] = outcome{node: i % 2, err: err}
			if err == nil {
				outcomes[i].ca = string(response.GetCaCertificates()[0])
			}
		})
	}
	group.Wait()
	winner, ca := -1, ""
	for _, o := range outcomes {
		if o.err == nil {
			winner, ca = o.node, o.ca
		}
	}
	if winner < 0 {
		t.Fatalf("nobody made a cluster: %v", outcomes[0].err)
	}
	for _, o := range outcomes {
		switch {
		case o.node == winner && (o.err != nil || o.ca != ca):
			t.Errorf("one who meant the same got %v", o.err)
		case o.node != winner:
			wantCode(t, o.err, codes.AlreadyExists)
		}
	}
}

// The call may come before the store has opened, and before anything else of the curator runs.
func TestBootstrapWaitsForTheStore(t *testing.T) {
	service := bootstrap.NewService(time.Now)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := service.Bootstrap(ctx, request(newKey(t), newKey(t)))
	wantCode(t, err, codes.Unavailable, "reeve.consensus.v1")

	done := make(chan error)
	go func() {
		_, err := service.Bootstrap(t.Context(), request(newKey(t), newKey(t)))
		done <- err
	}()
	service.Attach(store.New(store.Config{Client: etcd.Client(t, etcd.NewPrefix()), ClusterUser: "curator", AnswerWithin: patience}), nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBootstrapRefusals(t *testing.T) {
	service := bootstrap.NewService(time.Now)
	client := etcd.Client(t, etcd.NewPrefix())
	service.Attach(store.New(store.Config{Client: client, ClusterUser: "curator", AnswerWithin: patience}), nil)
	tests := map[string]struct {
		change func(*clusterv1.BootstrapRequest)
		says   string
	}{
		"no cluster ID":          {func(r *clusterv1.BootstrapRequest) { r.ClusterId = "" }, "cluster_id"},
		"a cluster ID no domain": {func(r *clusterv1.BootstrapRequest) { r.ClusterId = "a/b" }, "cluster_id"},
		"a short node key":       {func(r *clusterv1.BootstrapRequest) { r.NodePublicKey = r.NodePublicKey[1:] }, "node_public_key"},
		"no owner":               {func(r *clusterv1.BootstrapRequest) { r.OwnerPublicKey = nil }, "owner_public_key"},
		"the owner is the node":  {func(r *clusterv1.BootstrapRequest) { r.OwnerPublicKey = r.NodePublicKey }, "owner_public_key"},
		"a role twice":           {func(r *clusterv1.BootstrapRequest) { r.Roles = append(r.Roles, r.Roles[0]) }, `"store" is listed twice`},
		"an unknown role": {func(r *clusterv1.BootstrapRequest) {
			r.Roles = append(r.Roles, &clusterv1.RoleAssignment{Role: "ghost"})
		}, `"ghost"`},
		"no store":                  {func(r *clusterv1.BootstrapRequest) { r.Roles = r.Roles[1:] }, "reeve.consensus.v1"},
		"no cluster API":            {func(r *clusterv1.BootstrapRequest) { r.Roles = r.Roles[:1] }, "provides reeve.cluster.v1"},
		"no roles":                  {func(r *clusterv1.BootstrapRequest) { r.Roles = nil }, "reeve.cluster.v1"},
		"a bad configuration":       {func(r *clusterv1.BootstrapRequest) { r.Roles[1].Configuration = `{"listen": 1}` }, "roles[1].configuration/listen"},
		"a plugin twice":            {func(r *clusterv1.BootstrapRequest) { r.Plugins = append(r.Plugins, r.Plugins[0]) }, `"consensus" is listed twice`},
		"a record not its manifest": {func(r *clusterv1.BootstrapRequest) { r.Plugins[0].Version = "2.0.0" }, `"2.0.0"`},
		"a bad digest":              {func(r *clusterv1.BootstrapRequest) { r.Plugins[0].Digests = map[string]string{"linux/amd64": "md5:0"} }, "plugins[0].digests"},
		"no protocol":               {func(r *clusterv1.BootstrapRequest) { r.Plugins[0].Manifest.Protocols = []string{"reeve.role.v9"} }, "reeve.role.v9"},
		"a role of two plugins": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins = append(r.Plugins, record(plugin("other", &rolev1.RoleManifest{Name: "store"})))
		}, `the role "store" belongs to plugin "consensus"`},
		"a ConsensusUser of two plugins": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins = append(r.Plugins, record(plugin("other", &rolev1.RoleManifest{Name: "other", ConsensusUser: "beam"})))
		}, `the ConsensusUser "beam" belongs to role "lighthouse" of plugin "extras"`},
		"the store's root": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins = append(r.Plugins, record(plugin("other", &rolev1.RoleManifest{Name: "other", ConsensusUser: "root"})))
		}, `"root"`},
		"a ConsensusUser that is not declared": {func(r *clusterv1.BootstrapRequest) { r.Plugins[0].Grants[0].ConsensusUser = "curator" }, "plugins[0].grants[0].consensus_user"},
		"a grant that is not wanted": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins[0].Grants[0].Grants = []*rolev1.Grant{replaceFile("/etc/motd")}
		}, `"replace-file"`},
		"a grant that does not exist": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins[2].Manifest.Roles[0].Grants = []*rolev1.Grant{{Name: "paint"}}
		}, `plugins[2].manifest.roles[0].grants[0].name: there is no grant "paint"`},
		"a version that waits": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins[0].Waiting = &clusterv1.PluginVersion{Version: "2.0.0"}
		}, "plugins[0]: it has a version that waits"},
		"a version before": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins[0].Previous = &clusterv1.PluginVersion{Version: "0.9.0"}
		}, "plugins[0]: it has a version that waits or that ran before"},
		"roles that wait for each other": {func(r *clusterv1.BootstrapRequest) {
			r.Plugins = append(r.Plugins, record(plugin("other",
				&rolev1.RoleManifest{Name: "a", Requires: []string{"b"}}, &rolev1.RoleManifest{Name: "b", Requires: []string{"a"}})))
			r.Roles = append(r.Roles, &clusterv1.RoleAssignment{Role: "a"}, &clusterv1.RoleAssignment{Role: "b"})
		}, "none of the roles a, b can start before"},
		"a configuration too large": {func(r *clusterv1.BootstrapRequest) {
			r.Roles[0].Configuration = fmt.Sprintf(`{"a": %q}`, strings.Repeat("x", 256<<10))
		}, "roles[0].configuration"},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			request := request(newKey(t), newKey(t))
			test.change(request)
			_, err := service.Bootstrap(t.Context(), request)
			wantCode(t, err, codes.InvalidArgument, test.says)
		})
	}
	if got, err := client.Get(t.Context(), "cluster"); err != nil || len(got.Kvs) != 0 {
		t.Errorf("something was written: %v, %v", got, err)
	}
}

// FuzzBootstrap gives the validation whatever a wire can carry: it answers, and what it lets through is a cluster.
func FuzzBootstrap(f *testing.F) {
	f.Add([]byte{})
	node, owner := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	f.Fuzz(func(t *testing.T, data []byte) {
		request := request(node, owner)
		// On top of a good request, so that the parts behind it are reached.
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(data, request); err != nil {
			t.Skip()
		}
		service := bootstrap.NewService(time.Now)
		keep := new(keeper)
		service.Attach(keep, nil)
		_, err := service.Bootstrap(t.Context(), request)
		if keep.kept == nil {
			wantCode(t, err, codes.InvalidArgument)
			return
		}
		if keep.kept.Node.GetId() != identity.NodeID(request.GetNodePublicKey()) {
			t.Errorf("the node is %s", keep.kept.Node.GetId())
		}
	})
}

// keeper is a store that only remembers what is created.
type keeper struct{ kept *store.Genesis }

func (k *keeper) ReadAll(context.Context) (*store.State, error) { return new(store.State), nil }

func (k *keeper) Create(_ context.Context, genesis store.Genesis) (bool, error) {
	k.kept = &genesis
	return true, nil
}

func (k *keeper) Update(context.Context, store.Call, func(*store.State) (*store.Change, error)) (*store.State, error) {
	return nil, errors.New("nobody changes anything")
}

func (k *keeper) NoteIssued(context.Context, store.Issued) (bool, error) {
	return false, nil
}

func (k *keeper) ReadSigningKey(context.Context) (key, certificate []byte, err error) {
	return k.kept.Key.GetPrivateKey(), k.kept.CA.GetCertificates()[0], nil
}
