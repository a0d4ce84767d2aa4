package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// beat sends a heartbeat as a start of the machine's core.
func (m *machine) beat(start *clusterv1.Incarnation) error {
	_, err := m.as(start).Heartbeat(m.c.t.Context(), &clusterv1.HeartbeatRequest{})
	return err
}

// The start of a node's core that called last counts, through whichever curator; copies of its disk are refused until the owner says otherwise.
func TestStarts(t *testing.T) {
	c := newCluster(t)
	c.announce()
	other := start(t, etcd, c.prefix, nil).ready()
	m := c.member("store")
	wantCode(t, m.beat(nil), codes.InvalidArgument, clusterv1.IncarnationHeader)
	for n := range 3 {
		if err := m.beat(m.start); err != nil {
			t.Errorf("%d: %v", n, err)
		}
	}
	first := watch(t, m.as(m.start))
	first.await("itself", func(r *clusterv1.WatchResponse) bool { return r.GetNode().GetId() == m.id })
	third := incarnation(3)
	client := clusterv1.NewNodeServiceClient(c.dialAs(other, selfSigned(t, m.key), third))
	if _, err := client.Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{}); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = first.stream.Recv()
	}
	wantRefusedStart(t, err, false, 3)
	wantCode(t, m.beat(m.start), codes.FailedPrecondition, "reeve node accept", m.id)
	older := incarnation(2)
	wantRefusedStart(t, m.beat(older), false, 3)
	if problem := c.nodeOf(m.id).GetProblem(); !contains(problem, "older copy") || !contains(problem, "127.0.0.1:") || !contains(problem, "reeve node accept "+m.id) {
		t.Errorf("operators see %q", problem)
	}
	if err := m.beat(third); err != nil {
		t.Errorf("the one that counts: %v", err)
	}
	accepted, err := c.asOwner().AcceptNode(t.Context(), &clusterv1.AcceptNodeRequest{NodeId: m.id})
	if err != nil || accepted.GetNode().GetProblem() != "" || accepted.GetNode().GetRecord().GetId() != m.id {
		t.Errorf("%v, %v", accepted, err)
	}
	if err := m.beat(older); err != nil {
		t.Errorf("after it was accepted: %v", err)
	}
	wantRefusedStart(t, m.beat(incarnation(2)), true, 2)
	if problem := c.nodeOf(m.id).GetProblem(); !contains(problem, "two machines") {
		t.Errorf("operators see %q", problem)
	}
	// The record of the node is as it was: nobody decided anything.
	if node := c.nodeOf(m.id).GetRecord(); node.GetGeneration() != accepted.GetNode().GetRecord().GetGeneration() {
		t.Errorf("%v", node)
	}
	never := c.machine()
	never.register(c.ticket(&clusterv1.CreateTicketRequest{}))
	_, err = c.asOwner().AcceptNode(t.Context(), &clusterv1.AcceptNodeRequest{NodeId: never.id})
	wantCode(t, err, codes.FailedPrecondition, "New")
}

// One who is refused all the time does not have the store write all the time.
func TestRefusedStartsAreNotedNowAndThen(t *testing.T) {
	c := newStandingCluster(t)
	c.announce()
	m := c.member("store")
	newer := incarnation(100)
	if err := m.beat(newer); err != nil {
		t.Fatal(err)
	}
	client := c.client()
	for number := range uint64(20) {
		_ = m.beat(incarnation(number + 1))
	}
	got, err := client.Get(t.Context(), "refused/"+m.id)
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Version > 3 {
		t.Errorf("%v, %v", got, err)
	}
}

// Two machines with the same number race: one of them is the node.
func TestTwins(t *testing.T) {
	c := newClusterOn(t, etcd, func(*server.Config) {})
	c.announce()
	m := c.member("store")
	results := make(chan error, 4)
	for range 4 {
		twin := m.as(incarnation(2))
		go func() {
			_, err := twin.Heartbeat(t.Context(), &clusterv1.HeartbeatRequest{})
			results <- err
		}()
	}
	let := 0
	for range 4 {
		if err := <-results; err == nil {
			let++
		} else {
			wantRefusedStart(t, err, true, 2)
		}
	}
	if let != 1 {
		t.Errorf("%d of 4 are the node", let)
	}
}
