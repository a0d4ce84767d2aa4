package server_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"slices"
	"testing"

	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// announce has the first node report where its curator is reached, as its core does.
func (c *cluster) announce() {
	c.t.Helper()
	_, err := c.asNode().ReportStatus(c.t.Context(), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{
		{Role: "api", State: hostv1.InstanceState_INSTANCE_STATE_READY, Endpoints: []*rolev1.Endpoint{{Name: "reeve.cluster.v1", Address: c.curator.address}}},
		// A node may say what it likes of itself; nobody is sent there.
		{Role: "hostsfile", State: hostv1.InstanceState_INSTANCE_STATE_READY, Endpoints: []*rolev1.Endpoint{{Name: "reeve.cluster.v1", Address: "192.0.2.66:1"}}},
	}}})
	if err != nil {
		c.t.Fatal(err)
	}
	watch(c.t, c.asNode()).await("the report", func(r *clusterv1.WatchResponse) bool { return len(r.GetDirectory().GetNodes()[0].GetRoles()) == 1 })
}

// ticket makes a ticket.
func (c *cluster) ticket(request *clusterv1.CreateTicketRequest) *clusterv1.CreateTicketResponse {
	c.t.Helper()
	response, err := c.asOwner().CreateTicket(c.t.Context(), request)
	if err != nil {
		c.t.Fatal(err)
	}
	return response
}

// machine is one that comes.
type machine struct {
	c         *cluster
	id        string
	key, join ed25519.PrivateKey
	start     *clusterv1.Incarnation
	cuk       []byte
}

func (c *cluster) machine() *machine {
	c.t.Helper()
	m := &machine{c: c, key: newKey(c.t), join: newKey(c.t), start: incarnation(1), cuk: random(32)}
	m.id = identity.NodeID(public(m.key))
	return m
}

func random(n int) []byte {
	bytes := make([]byte, n)
	_, _ = rand.Read(bytes)
	return bytes
}

func incarnation(number uint64) *clusterv1.Incarnation {
	return &clusterv1.Incarnation{Number: number, Nonce: random(16)}
}

// by is the enrolment service of a curator as the holder of a key calls it.
func (m *machine) by(to *curator, key ed25519.PrivateKey) clusterv1.EnrolmentServiceClient {
	m.c.t.Helper()
	return clusterv1.NewEnrolmentServiceClient(m.c.dial(to, selfSigned(m.c.t, key)))
}

func (m *machine) enrolment() clusterv1.EnrolmentServiceClient { return m.by(m.c.curator, m.key) }

// request is what the machine registers with.
func (m *machine) request(with *clusterv1.CreateTicketResponse, roles ...string) *clusterv1.RegisterRequest {
	request := &clusterv1.RegisterRequest{
		TicketId: with.GetText().GetTicketId(), TicketSecret: with.GetText().GetSecret(), JoinPublicKey: public(m.join), Version: "0.1.0",
		Addresses: []string{"192.0.2.7"}, Sealer: "file", Volume: "fscrypt",
	}
	for _, role := range roles {
		request.Roles = append(request.Roles, &clusterv1.RoleAssignment{Role: role})
	}
	return request
}

func (m *machine) register(with *clusterv1.CreateTicketResponse, roles ...string) *clusterv1.NodeRecord {
	m.c.t.Helper()
	response, err := m.enrolment().Register(m.c.t.Context(), m.request(with, roles...))
	if err != nil {
		m.c.t.Fatal(err)
	}
	return response.GetNode()
}

func (m *machine) commit() (*clusterv1.CommitResponse, error) {
	return m.enrolment().Commit(m.c.t.Context(), &clusterv1.CommitRequest{Cuk: m.cuk, Incarnation: m.start})
}

func (m *machine) joins(with ed25519.PrivateKey, start *clusterv1.Incarnation) ([]byte, error) {
	response, err := m.by(m.c.curator, with).Join(m.c.t.Context(), &clusterv1.JoinRequest{Incarnation: start})
	return response.GetCuk(), err
}

// as is the node service as a start of the machine's core calls it.
func (m *machine) as(start *clusterv1.Incarnation) clusterv1.NodeServiceClient {
	m.c.t.Helper()
	return clusterv1.NewNodeServiceClient(m.c.dialAs(m.c.curator, selfSigned(m.c.t, m.key), start))
}

// member is a machine that has come all the way.
func (c *cluster) member(roles ...string) *machine {
	c.t.Helper()
	m := c.machine()
	m.register(c.ticket(&clusterv1.CreateTicketRequest{Roles: roles}), roles...)
	if _, err := c.asOwner().ApproveNode(c.t.Context(), &clusterv1.ApproveNodeRequest{NodeId: m.id}); err != nil {
		c.t.Fatal(err)
	}
	if _, err := m.commit(); err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *cluster) nodeOf(id string) *clusterv1.Node {
	c.t.Helper()
	response, err := c.asOwner().GetNode(c.t.Context(), &clusterv1.GetNodeRequest{NodeId: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return response.GetNode()
}

// wantRefusedStart fails the test if err does not say that a start was refused.
func wantRefusedStart(t *testing.T, err error, twin bool, known uint64) {
	t.Helper()
	details := status.Convert(err).Details()
	if !slices.ContainsFunc(details, func(detail any) bool {
		refused, ok := detail.(*clusterv1.IncarnationRefused)
		return ok && refused.GetTwin() == twin && refused.GetKnown() == known
	}) {
		t.Errorf("%v with %v, want a refused start (twin %t, known %d)", err, details, twin, known)
	}
}
