package server_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// A machine registers with a ticket, waits, is approved, commits itself, and is a node like any other: each step can be taken again.
func TestEnrolment(t *testing.T) {
	c := newCluster(t)
	c.announce()
	made := c.ticket(&clusterv1.CreateTicketRequest{Labels: map[string]string{"rack": "2"}, Note: "the second one"})
	m := c.machine()
	asked := m.request(made, "lighthouse", "store")
	asked.Labels = map[string]string{"disk": "fast"}
	asked.Version = "0.1.0\x1b[2J"
	first, err := m.enrolment().Register(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	node := first.GetNode()
	registration := node.GetRegistration()
	if node.GetState() != stateNew || len(node.GetRoles()) != 0 || registration.GetTicketId() != made.GetTicket().GetId() || registration.GetAutomatic() ||
		registration.GetVersion() != `0.1.0\x1b[2J` || len(registration.GetRoles()) != 2 || !contains(registration.GetPeerAddress(), "127.0.0.1:") {
		t.Errorf("%v", node)
	}
	if diff := cmp.Diff(map[string]string{"rack": "2", "disk": "fast"}, node.GetLabels()); diff != "" {
		t.Error(diff)
	}
	// The ticket is spent, and is not asked for again.
	asked.TicketSecret, asked.TicketId = nil, ""
	again, err := m.enrolment().Register(t.Context(), asked)
	if err != nil || !proto.Equal(again, first) {
		t.Errorf("%v, %v", again, err)
	}
	if shown := c.nodeOf(m.id).GetRecord(); !proto.Equal(shown, node) {
		t.Errorf("operators see %v", shown)
	}
	_, err = m.commit()
	wantCode(t, err, codes.FailedPrecondition, "not approved", m.id)
	_, err = m.as(m.start).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
	wantCode(t, err, codes.Unauthenticated, "no member")

	stream, err := m.enrolment().Await(inTime(t), &clusterv1.AwaitRequest{})
	if err != nil {
		t.Fatal(err)
	}
	waits := func(state clusterv1.NodeState) {
		t.Helper()
		for {
			got, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.GetCurators(), []string{c.curator.address}) {
				t.Errorf("the curators are %v", got.GetCurators())
			}
			if got.GetState() == state {
				return
			}
		}
	}
	waits(stateNew)
	owner := c.asOwner()
	approve := &clusterv1.ApproveNodeRequest{NodeId: m.id[:12], PublicKey: public(newKey(t))}
	_, err = owner.ApproveNode(t.Context(), approve)
	wantCode(t, err, codes.Aborted, m.id)
	approve.PublicKey, approve.Labels = public(m.key), map[string]string{"disk": "", "row": "7"}
	approved, err := owner.ApproveNode(t.Context(), approve)
	if err != nil || approved.GetNode().GetState() != stateStandby || roles(approved.GetNode()) != "lighthouse@2 store@2" {
		t.Fatalf("%v, %v", approved, err)
	}
	if diff := cmp.Diff(map[string]string{"rack": "2", "row": "7"}, approved.GetNode().GetLabels()); diff != "" {
		t.Error(diff)
	}
	if again, err := owner.ApproveNode(t.Context(), approve); err != nil || !proto.Equal(again, approved) {
		t.Errorf("%v, %v", again, err)
	}
	waits(stateStandby)
	_, err = m.as(m.start).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
	wantCode(t, err, codes.Unauthenticated, "no member")
	if _, desired := c.stored(); slices.Contains(desired.GetMembers(), m.id) {
		t.Error("the store takes in a node that has not committed itself")
	}
	_, err = m.joins(m.join, m.start)
	wantCode(t, err, codes.NotFound, m.id)

	committed, err := m.commit()
	if err != nil {
		t.Fatal(err)
	}
	waits(stateUp)
	if _, desired := c.stored(); !slices.Contains(desired.GetMembers(), m.id) {
		t.Errorf("%v", desired)
	}
	if committed.GetNode().GetState() != stateUp || len(committed.GetPlugins()) != 2 || committed.GetClusterUser() != "curator" || committed.GetPolicy() == nil ||
		!bytes.Equal(committed.GetOwnerPublicKey(), public(c.owner)) || !slices.Equal(committed.GetCurators(), []string{c.curator.address}) {
		t.Errorf("%v", committed)
	}
	svid := certificate(m.key, committed.GetNodeSvid())
	if _, err := clusterv1.NewNodeServiceClient(c.dialAs(c.curator, svid, m.start)).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Error(err)
	}
	replayed, err := m.commit()
	if err != nil {
		t.Fatal(err)
	}
	replayed.NodeSvid = committed.NodeSvid
	if diff := cmp.Diff(committed, replayed, protocmp.Transform()); diff != "" {
		t.Errorf("committed again: %s", diff)
	}
	own := m.cuk
	for _, other := range [][]byte{random(32), nil} {
		m.cuk = other
		_, err = m.commit()
		wantCode(t, err, codes.AlreadyExists, m.id)
	}
	m.cuk = random(31)
	_, err = m.commit()
	wantCode(t, err, codes.InvalidArgument, "cuk")
	// Restarted: the join key proves the node while its volume is locked.
	if cuk, err := m.joins(m.join, incarnation(2)); err != nil || !bytes.Equal(cuk, own) {
		t.Errorf("%v", err)
	}
}

// Of machines with a ticket for one, at the same moment through two curators, one comes in.
func TestTicketIsSpentOnce(t *testing.T) {
	c := newCluster(t)
	c.announce()
	other := start(t, etcd, c.prefix, nil).ready()
	made := c.ticket(&clusterv1.CreateTicketRequest{Uses: 2})
	var came, refused int
	var mu sync.Mutex
	var group sync.WaitGroup
	for n := range 6 {
		m := c.machine()
		client := m.by([]*curator{c.curator, other}[n%2], m.key)
		group.Go(func() {
			_, err := client.Register(t.Context(), m.request(made))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				came++
				return
			}
			refused++
			wantCode(t, err, codes.Unauthenticated, "spent")
		})
	}
	group.Wait()
	if came != 2 || refused != 4 {
		t.Errorf("%d came in, %d did not", came, refused)
	}
	list, err := c.asOwner().ListTickets(t.Context(), &clusterv1.ListTicketsRequest{})
	if err != nil || len(list.GetTickets()) != 1 || list.GetTickets()[0].GetUsed() != 2 {
		t.Errorf("%v, %v", list, err)
	}
	state, err := store.New(store.Config{Client: c.client(), AnswerWithin: patience}).ReadAll(t.Context())
	if err != nil || len(state.Nodes) != 3 {
		t.Errorf("%v, %v", state, err)
	}
}

// What a ticket allows goes, and nothing else.
func TestTicketAllows(t *testing.T) {
	c := newCluster(t)
	c.announce()
	register := func(with *clusterv1.CreateTicketResponse, change func(*clusterv1.RegisterRequest), roles ...string) (*clusterv1.NodeRecord, error) {
		m := c.machine()
		request := m.request(with, roles...)
		if change != nil {
			change(request)
		}
		response, err := m.enrolment().Register(t.Context(), request)
		return response.GetNode(), err
	}
	bounded := c.ticket(&clusterv1.CreateTicketRequest{Uses: 9, Roles: []string{"store", "hostsfile"}, Labels: map[string]string{"rack": "2"}})
	_, err := register(bounded, nil, "store", "lighthouse")
	wantCode(t, err, codes.PermissionDenied, "hostsfile, store", "lighthouse")
	_, err = register(bounded, func(r *clusterv1.RegisterRequest) { r.Labels = map[string]string{"rack": "3"} })
	wantCode(t, err, codes.PermissionDenied, "rack")
	if _, err := register(bounded, func(r *clusterv1.RegisterRequest) { r.Labels = map[string]string{"rack": "2"} }, "hostsfile"); err != nil {
		t.Error(err)
	}
	for field, change := range map[string]func(*clusterv1.RegisterRequest){
		"join_public_key": func(r *clusterv1.RegisterRequest) { r.JoinPublicKey = random(31) },
		"addresses[0]":    func(r *clusterv1.RegisterRequest) { r.Addresses = []string{"fe80::1%\x1b"} },
		"labels":          func(r *clusterv1.RegisterRequest) { r.Labels = map[string]string{"a": "b\nc"} },
		"roles[0].role":   func(r *clusterv1.RegisterRequest) { r.Roles = []*clusterv1.RoleAssignment{{Role: "../x"}} },
		"16384":           func(r *clusterv1.RegisterRequest) { r.Version = string(bytes.Repeat([]byte("x"), 20_000)) },
	} {
		_, err := register(bounded, change)
		wantCode(t, err, codes.InvalidArgument, field)
	}
	free := c.ticket(&clusterv1.CreateTicketRequest{Uses: 9})
	_, err = register(free, nil, "ghost")
	wantCode(t, err, codes.NotFound, "ghost")
	_, err = register(free, nil, "api")
	wantCode(t, err, codes.FailedPrecondition, "reeve.consensus.v1")
	_, err = register(free, func(r *clusterv1.RegisterRequest) {
		r.Roles = []*clusterv1.RoleAssignment{{Role: "store"}, {Role: "api", Configuration: `{"listen": 7}`}}
	})
	wantCode(t, err, codes.InvalidArgument, "listen")
	_, err = register(free, func(r *clusterv1.RegisterRequest) { r.JoinPublicKey = public(c.owner) })
	wantCode(t, err, codes.AlreadyExists, "the owner's")
	_, err = (&machine{c: c, key: c.owner, join: newKey(t)}).enrolment().Register(t.Context(), c.machine().request(free))
	wantCode(t, err, codes.AlreadyExists, "the owner's")
	if kept := c.tickets()[0]; kept.GetUsed() != 0 {
		t.Errorf("what was refused has spent the ticket: %v", kept)
	}
	// One that approves by itself allows the roles that it names.
	automatic := c.ticket(&clusterv1.CreateTicketRequest{Uses: 9, AutoApprove: true})
	_, err = register(automatic, nil, "store")
	wantCode(t, err, codes.PermissionDenied, "names no roles")
	node, err := register(c.ticket(&clusterv1.CreateTicketRequest{AutoApprove: true, Roles: []string{"hostsfile"}}), nil, "hostsfile")
	if err != nil || node.GetState() != stateStandby || roles(node) != "hostsfile@1" || !node.GetRegistration().GetAutomatic() {
		t.Errorf("%v, %v", node, err)
	}
	// And the labels.
	vault := func(r *clusterv1.RegisterRequest) { r.Labels = map[string]string{"zone": "vault"} }
	_, err = register(automatic, vault)
	wantCode(t, err, codes.PermissionDenied, "approves by itself", "names no labels")
	racked := c.ticket(&clusterv1.CreateTicketRequest{Uses: 9, AutoApprove: true, Labels: map[string]string{"rack": "2"}})
	_, err = register(racked, vault)
	wantCode(t, err, codes.PermissionDenied, "names the labels rack, and", "no others")
	if node, err := register(racked, func(r *clusterv1.RegisterRequest) { r.Labels = map[string]string{"rack": "2"} }); err != nil || len(node.GetLabels()) != 1 {
		t.Errorf("%v, %v", node, err)
	}
	if node, err := register(free, vault); err != nil || node.GetLabels()["zone"] != "vault" || node.GetState() != stateNew {
		t.Errorf("somebody looks at it: %v, %v", node, err)
	}
}

func (c *cluster) tickets() []*clusterv1.Ticket {
	c.t.Helper()
	list, err := c.asOwner().ListTickets(c.t.Context(), &clusterv1.ListTicketsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.GetTickets()
}

// A newcomer knows nothing of the cluster but the pins of its ticket, and finds the root in the handshake.
func TestPinnedRootIsServed(t *testing.T) {
	c := newCluster(t)
	c.announce()
	text := c.ticket(&clusterv1.CreateTicketRequest{}).GetText()
	if text.GetClusterId() != clusterID || len(text.GetCaPins()) != 1 || len(text.GetSecret()) != 32 || !slices.Equal(text.GetCurators(), []string{c.curator.address}) {
		t.Errorf("%v", text)
	}
	name := identity.CuratorName(identity.TrustDomain(clusterID))
	conn, err := (&tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*selfSigned(t, newKey(t))}, InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			roots := x509.NewCertPool()
			for _, sent := range state.PeerCertificates[1:] {
				if pin := sha256.Sum256(sent.RawSubjectPublicKeyInfo); bytes.Equal(pin[:], text.GetCaPins()[0]) {
					roots.AddCert(sent)
				}
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
			return err
		},
	}}).DialContext(inTime(t), "tcp", c.curator.address)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// The key of a volume is given to the node's join key only, as long as the policy allows it, and while it is a member.
func TestJoin(t *testing.T) {
	c := newCluster(t)
	c.announce()
	m := c.member("store")
	plain := c.machine()
	plain.register(c.ticket(&clusterv1.CreateTicketRequest{AutoApprove: true}))
	plain.cuk = nil
	if _, err := plain.commit(); err != nil {
		t.Fatal(err)
	}
	_, err := plain.joins(plain.join, incarnation(2))
	wantCode(t, err, codes.NotFound, "does not have")
	for _, key := range []*machine{{c: c, key: m.key}, {c: c, key: newKey(t)}, {c: c, key: c.owner}} {
		_, err := m.joins(key.key, incarnation(2))
		wantCode(t, err, codes.NotFound, "join key")
	}
	_, err = m.joins(m.join, nil)
	wantCode(t, err, codes.InvalidArgument, "incarnation")
	_, err = m.by(c.curator, m.join).Commit(t.Context(), &clusterv1.CommitRequest{Cuk: m.cuk, Incarnation: m.start})
	wantCode(t, err, codes.NotFound)

	policy := func(sources ...string) {
		t.Helper()
		if _, err := c.asOwner().SetPolicy(t.Context(), &clusterv1.SetPolicyRequest{Policy: &clusterv1.ClusterPolicy{
			Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, CukSources: sources,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	policy("tpm")
	_, err = m.joins(m.join, incarnation(2))
	wantCode(t, err, codes.PermissionDenied, `"cluster"`, "recovery, tpm")
	policy("cluster")
	second := incarnation(2)
	if cuk, err := m.joins(m.join, second); err != nil || !bytes.Equal(cuk, m.cuk) {
		t.Errorf("%v", err)
	}
	if cuk, err := m.joins(m.join, second); err != nil || !bytes.Equal(cuk, m.cuk) {
		t.Errorf("again: %v", err)
	}
	_, err = m.joins(m.join, incarnation(1))
	wantRefusedStart(t, err, false, 2)
	_, err = m.joins(m.join, incarnation(2))
	wantRefusedStart(t, err, true, 2)

	c.setState(m.id, clusterv1.NodeState_NODE_STATE_DECOMMISSIONING)
	if _, err := m.joins(m.join, second); err != nil {
		t.Error(err)
	}
	c.setState(m.id, stateDecommissioned)
	_, err = m.joins(m.join, incarnation(3))
	wantRemoved(t, err, m.id, "decommissioned")
	if got, err := c.client().Get(t.Context(), "cuk/"+m.id); err != nil || len(got.Kvs) != 0 {
		t.Errorf("the key of a node that was removed is kept: %v", err)
	}
}

// A node that was removed is told so, whatever it calls, and its machine does not come again with the same key.
func TestRemovedNodeIsTold(t *testing.T) {
	c := newCluster(t)
	c.announce()
	m := c.member("store")
	watched := watch(t, m.as(m.start))
	watched.await("itself", func(r *clusterv1.WatchResponse) bool { return r.GetNode().GetId() == m.id })
	waiting, err := m.enrolment().Await(inTime(t), &clusterv1.AwaitRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Recv(); err != nil {
		t.Fatal(err)
	}
	c.setState(m.id, stateDecommissioned)
	for err = nil; err == nil; {
		_, err = watched.stream.Recv()
	}
	wantRemoved(t, err, m.id)
	for err = nil; err == nil; {
		_, err = waiting.Recv()
	}
	wantRemoved(t, err, m.id)
	_, err = m.as(incarnation(9)).Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
	wantRemoved(t, err, m.id)
	_, err = m.enrolment().Register(t.Context(), m.request(c.ticket(&clusterv1.CreateTicketRequest{})))
	wantRemoved(t, err, m.id)
	_, err = m.commit()
	wantRemoved(t, err, m.id)
	for _, entry := range c.log(20) {
		if entry.GetRpc() == "Commit" && entry.GetCode() == "PermissionDenied" {
			// It is kept with those of strangers, who can have nobody else's calls forgotten.
			if entry.GetCaller() != "unknown" || !contains(entry.GetReason(), m.id) || !contains(entry.GetReason(), "removed") {
				t.Errorf("%v", entry)
			}
			return
		}
	}
	t.Error("that it called is not in the audit log")
}
