package server_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
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

// So many machines may wait for approval, and no more: also with good tickets.
func TestWaitingIsBounded(t *testing.T) {
	c := newCluster(t)
	c.announce()
	made := c.ticket(&clusterv1.CreateTicketRequest{Uses: 9})
	c.machine().register(made)
	for added := 1; added < rules.MaxNew; {
		c.update(func(*store.State) *store.Change {
			change := new(store.Change)
			for ; len(change.Nodes) < 111 && added < rules.MaxNew; added++ {
				key := public(newKey(t))
				change.Nodes = append(change.Nodes, &clusterv1.NodeRecord{Id: identity.NodeID(key), PublicKey: key, State: stateNew, Generation: 1})
			}
			return change
		})
	}
	m := c.machine()
	_, err := m.enrolment().Register(t.Context(), m.request(made))
	wantCode(t, err, codes.ResourceExhausted, "1000 nodes wait")
	c.machine().register(c.ticket(&clusterv1.CreateTicketRequest{AutoApprove: true}))
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
				// Who is told to come again does.
				err := call()
				for code := status.Code(err); code == codes.Aborted || code == codes.ResourceExhausted; code = status.Code(err) {
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
