package server_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/plugins/curator/internal/tickets"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// newStandingCluster is a cluster for whose curator no time passes, however long the test takes.
func newStandingCluster(t *testing.T) *cluster {
	t.Helper()
	now := time.Now()
	return newClusterOn(t, etcd, func(config *server.Config) { config.Now = func() time.Time { return now } })
}

// What never comes in is bounded: how many wait, and how often an address may fail. A node is not kept out by its neighbours.
func TestStrangersAreBounded(t *testing.T) {
	c := newStandingCluster(t)
	c.announce()
	m := c.member("store")
	made := c.ticket(&clusterv1.CreateTicketRequest{Uses: 9})
	stranger := c.machine()
	request := stranger.request(made)
	request.TicketSecret = random(32)
	bounded := false
	for range 200 {
		_, err := stranger.enrolment().Register(t.Context(), request)
		if bounded = err != nil && contains(err.Error(), "ResourceExhausted"); bounded {
			break
		}
		wantCode(t, err, codes.Unauthenticated, "ticket")
	}
	if !bounded {
		t.Error("an address may fail 200 times at once")
	}
	if _, err := m.joins(m.join, incarnation(2)); err != nil {
		t.Errorf("a node at that address: %v", err)
	}
}

// waits adds machines that wait for approval, by somebody's tickets.
func (c *cluster) waits(machines int, maker string) {
	c.t.Helper()
	for added := 0; added < machines; {
		c.update(func(*store.State) *store.Change {
			change := new(store.Change)
			for ; len(change.Nodes) < 111 && added < machines; added++ {
				key := public(newKey(c.t))
				change.Nodes = append(change.Nodes, &clusterv1.NodeRecord{
					Id: identity.NodeID(key), PublicKey: key, State: stateNew, Generation: 1, Registration: &clusterv1.Registration{TicketCreatedBy: maker},
				})
			}
			return change
		})
	}
}

// So many machines may wait for approval, and no more: also with good tickets. One operator's tickets do not take all places.
func TestWaitingIsBounded(t *testing.T) {
	c := newCluster(t)
	c.announce()
	made := c.ticket(&clusterv1.CreateTicketRequest{Uses: 9})
	olga := c.addOperator("olga", roleOwner).client()
	hers, err := olga.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{Uses: 9})
	if err != nil {
		t.Fatal(err)
	}
	automatic, err := olga.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{AutoApprove: true})
	if err != nil {
		t.Fatal(err)
	}
	register := func(with *clusterv1.CreateTicketResponse) error {
		m := c.machine()
		_, err := m.enrolment().Register(t.Context(), m.request(with))
		return err
	}
	c.waits(rules.MostOfOne, "olga")
	wantCode(t, register(hers), codes.ResourceExhausted, "operator olga has made 250 of them", "reeve node list")
	c.machine().register(made)
	c.machine().register(automatic)
	c.waits(rules.MostMade-rules.MostOfOne-1, "owner")
	wantCode(t, register(made), codes.ResourceExhausted, "there are 1000 already")
	c.machine().register(c.ticket(&clusterv1.CreateTicketRequest{AutoApprove: true}))
}

// What operators with the role owner can make more and more of, one of them does not use up, nor all of them together: the holder of the owner key can go on, and ends an operator's tickets with the operator.
func TestSharesOfOperators(t *testing.T) {
	c := newCluster(t)
	c.announce()
	olga, otto := c.addOperator("olga", roleOwner), c.addOperator("otto", roleOwner)
	ticket := func(as clusterv1.ManagementServiceClient) error {
		_, err := as.CreateTicket(t.Context(), &clusterv1.CreateTicketRequest{})
		return err
	}
	add := func(as clusterv1.ManagementServiceClient, name string) error {
		_, err := as.AddOperator(t.Context(), &clusterv1.AddOperatorRequest{Name: name, Role: roleViewer, PublicKey: public(newKey(t))})
		return err
	}
	for part := range slices.Chunk(make([]struct{}, rules.MostOfOne), 50) {
		c.update(func(*store.State) *store.Change {
			change := new(store.Change)
			for range part {
				made, _ := tickets.New(&curatorv1.Ticket{CreatedBy: "olga", MadeBy: olga.record.GetId(), Uses: 1, Expires: tickets.Expires(time.Now(), 0)})
				key := public(newKey(t))
				change.Tickets = append(change.Tickets, made)
				change.Operators = append(change.Operators, &clusterv1.Operator{
					Name: "o-" + made.GetId(), Id: made.GetId() + made.GetId(), Role: roleViewer, PublicKey: key, CreatedBy: "operator olga",
				})
			}
			return change
		})
	}
	wantCode(t, ticket(olga.client()), codes.ResourceExhausted, "operator olga has made 250 of them", "reeve ticket revoke")
	wantCode(t, add(olga.client(), "oscar"), codes.ResourceExhausted, "operator olga has made 250 of them", "reeve operator revoke")
	for name, as := range map[string]clusterv1.ManagementServiceClient{"otto": otto.client(), "the owner": c.asOwner()} {
		if err := errors.Join(ticket(as), add(as, "of-"+strings.TrimPrefix(name, "the "))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "olga"}); err != nil {
		t.Fatal(err)
	}
	if left := len(c.tickets()); left != 2 {
		t.Errorf("%d tickets are left", left)
	}
	olga = c.addOperator("olga", roleOwner)
	if err := ticket(olga.client()); err != nil {
		t.Errorf("another one of that name: %v", err)
	}
}

// A rack that is switched on at once comes in, through whichever curators.
func TestManyRegisterAtOnce(t *testing.T) {
	c := newCluster(t)
	c.announce()
	other := start(t, etcd, c.prefix, nil).ready()
	const machines = 30
	made := c.ticket(&clusterv1.CreateTicketRequest{Uses: machines, Roles: []string{"hostsfile"}, AutoApprove: true})
	var group sync.WaitGroup
	for n := range machines {
		m := c.machine()
		client := m.by([]*curator{c.curator, other}[n%2], m.key)
		group.Go(func() {
			ctx := inTime(t)
			for _, call := range []func() error{
				func() error { _, err := client.Register(ctx, m.request(made, "hostsfile")); return err },
				func() error {
					_, err := client.Commit(ctx, &clusterv1.CommitRequest{Cuk: m.cuk, Incarnation: m.start})
					return err
				},
			} {
				// Who is told to come again does, and so does whoever was a stranger for too long, on a busy machine.
				err := call()
				for code := status.Code(err); code == codes.Aborted || code == codes.ResourceExhausted || code == codes.Unavailable; code = status.Code(err) {
					err = call()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if kept := c.tickets()[0]; kept.GetUsed() != machines {
		t.Errorf("%v", kept)
	}
}

// Who shows a key and nothing else is a stranger: no more is read from him than one large request for each connection.
func TestNewcomersSendLittle(t *testing.T) {
	c := newCluster(t)
	m := c.machine()
	client := m.enrolment()
	large := m.request(nil)
	large.Version = strings.Repeat("x", 1<<20)
	for n := range 4 {
		want := codes.Unauthenticated
		if n == 2 {
			want = codes.Unavailable // the connection was closed; the next call makes another one
		}
		if _, err := client.Register(inTime(t), large); status.Code(err) != want {
			t.Errorf("call %d of 1 MiB: %v, want %s", n+1, err, want)
		}
	}
}

// A member that commits itself again and again gets a certificate each time, of which a note is written: it has a pace.
func TestMembersCommitSeldom(t *testing.T) {
	c := newStandingCluster(t)
	c.announce()
	m := c.member("store")
	client := m.enrolment()
	var err error
	for n := 0; n < 200 && err == nil; n++ {
		_, err = client.Commit(t.Context(), &clusterv1.CommitRequest{Cuk: m.cuk, Incarnation: m.start})
	}
	wantCode(t, err, codes.ResourceExhausted, "starts more often")
}

// A machine that was removed is a stranger: it may fail no oftener than any other.
func TestRemovedMachinesAreStrangers(t *testing.T) {
	c := newStandingCluster(t)
	c.announce()
	m := c.member("store")
	c.setState(m.id, stateDecommissioned)
	c.await(m.id, "its end", func(node *clusterv1.Node) bool { return node.GetRecord().GetState() == stateDecommissioned })
	calls := []func() error{
		func() error { _, err := m.commit(); return err },
		func() error { _, err := m.joins(m.join, incarnation(3)); return err },
		func() error { _, err := m.enrolment().Register(t.Context(), m.request(nil)); return err },
	}
	for range 40 {
		for _, call := range calls {
			err := call()
			if status.Code(err) == codes.ResourceExhausted {
				return
			}
			wantRemoved(t, err, m.id)
		}
	}
	t.Error("it may fail as often as it likes")
}
