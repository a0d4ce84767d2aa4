package cluster_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/spread"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// many is a node without a curator of its own and the curators of other nodes, at the addresses in the order in which this node goes to them.
type many struct {
	*node
	net       *pipes
	addresses []string
	curators  map[string]*curator
	down      map[string]func()
}

// withCurators runs a test with n curators on other nodes, of which the node knows the addresses only.
func withCurators(t *testing.T, n int, test func(t *testing.T, m *many)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &many{net: newPipes(), curators: map[string]*curator{}, down: map[string]func(){}}
		m.node = newNode(t, m.net.dial)
		for i := range n {
			m.addresses = append(m.addresses, fmt.Sprintf("c%d:1", i))
		}
		m.addresses = spread.Order(nodeID(m.key), m.addresses)
		for _, address := range m.addresses {
			m.curators[address] = newCurator(m.ca.curatorCertificate())
			m.curators[address].view.Set(m.directory(7, m.addresses...))
			m.up(address)
		}
		m.again(func(c *cluster.Config) { c.Known = func() []string { return m.addresses } })
		defer func() {
			for _, down := range m.down {
				down()
			}
		}()
		test(t, m)
	})
}

// up serves at an address.
func (m *many) up(address string) {
	stop := m.curators[address].serve(m.t, m.net.listen(address))
	m.down[address] = func() { m.net.close(address); stop() }
}

// directory is a Watch message by which there are curators at the addresses, on other nodes that all live.
func (n *node) directory(revision uint64, addresses ...string) *clusterv1.WatchResponse {
	response := n.response(revision)
	for i, address := range addresses {
		response.Directory.Nodes = append(response.Directory.Nodes, &hostv1.DirectoryNode{NodeId: fmt.Sprintf("reeve-%032d", i), Healthy: true, Roles: []*hostv1.DirectoryRole{{
			Role: "curator", Endpoints: []*rolev1.Endpoint{{Name: roles.CapabilityCluster, Address: address}},
		}}})
	}
	return response
}

// at waits until contact has come by the curator at an address: it was told a status that nobody else was.
func (m *many) at(address, version string) {
	m.t.Helper()
	m.status.Set(reported(version))
	await(m.t, &m.curators[address].reports, func(r []*clusterv1.NodeStatus) bool { return len(r) > 0 && r[len(r)-1].GetVersion() == version })
	m.contact(true)
}

// unbroken fails the test if contact changes before it is called.
func (m *many) unbroken() (end func()) {
	changes := m.client.Contact().Watch()
	_, _ = changes.Latest()
	return func() {
		m.t.Helper()
		select {
		case <-changes.Changed():
			contact, _ := m.client.Contact().Get()
			m.t.Errorf("contact has changed: %+v", contact)
		default:
		}
	}
}

func TestTheNextCuratorFollowsOneThatIsKilled(t *testing.T) {
	withCurators(t, 3, func(t *testing.T, m *many) {
		defer m.run()()
		m.at(m.addresses[0], "1")
		end := m.unbroken()
		for i, address := range m.addresses[:2] {
			m.down[address]()
			killed := time.Now()
			m.at(m.addresses[i+1], fmt.Sprint(i+2))
			if took := time.Since(killed); took > 1500*time.Millisecond+2*time.Second {
				t.Errorf("%v until the next curator was told", took)
			}
			calls, _ := m.curators[m.addresses[i+1]].calls.Get()
			if took := calls[0].at.Sub(killed); took > 1500*time.Millisecond {
				t.Errorf("%v until the next curator was called", took)
			}
		}
		end()
		// One that works is kept, though the first is back.
		m.up(m.addresses[0])
		time.Sleep(10 * time.Minute)
		m.at(m.addresses[2], "4")
		// Nor is it left when the node has another SVID.
		m.identity.Set(m.ca.node(m.key, m.ca.svid(m.key, time.Minute, 600*time.Hour)))
		m.at(m.addresses[2], "5")
		end()
	})
}

func TestCuratorsThatAreAllSlowAreReachedAllTheSame(t *testing.T) {
	withCurators(t, 3, func(t *testing.T, m *many) {
		for _, c := range m.curators {
			c.set(func(r *rules) { r.slow = 2500 * time.Millisecond })
		}
		began := time.Now()
		defer m.run()()
		m.contact(true)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("contact came after %v", took)
		}
		end := m.unbroken()
		time.Sleep(10 * time.Minute)
		end()
	})
}

func TestACuratorThatHangsIsLeft(t *testing.T) {
	withCurators(t, 2, func(t *testing.T, m *many) {
		defer m.run()()
		m.at(m.addresses[0], "1")
		end := m.unbroken()
		time.Sleep(time.Minute + 2*time.Second) // two seconds after a heartbeat
		m.net.freezeAt(m.addresses[0], true)
		frozen := time.Now()
		await(t, &m.curators[m.addresses[1]].calls, func(calls []call) bool { return len(calls) > 0 })
		if took := time.Since(frozen); took > ttl/3+2*time.Second {
			t.Errorf("it was left after %v", took)
		}
		m.at(m.addresses[1], "2")
		end()
	})
}

func TestACuratorThatDoesNotAnswerIsPassedByWithinASecond(t *testing.T) {
	withCurators(t, 3, func(t *testing.T, m *many) {
		m.net.freezeAt(m.addresses[0], true)
		m.net.freezeAt(m.addresses[1], true)
		began := time.Now()
		defer m.run()()
		m.contact(true)
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("contact came after %v", took)
		}
		m.at(m.addresses[2], "1")
	})
}

func TestTheNodeGoesToItsOwnCuratorWhenThatIsReady(t *testing.T) {
	withCurators(t, 2, func(t *testing.T, m *many) {
		defer m.run()()
		m.at(m.addresses[0], "1")
		end := m.unbroken()
		own := newCurator(m.ca.curatorCertificate())
		own.view.Set(m.directory(7, m.addresses...))
		m.curators["own:1"] = own
		m.up("own:1")
		m.curatorIn(hostv1.InstanceState_INSTANCE_STATE_STARTING, "i1", "own:1")
		time.Sleep(time.Minute)
		if own.count("Watch") > 0 {
			t.Error("the node's own curator was called before it was ready")
		}
		m.curatorAt("i1", "own:1")
		m.at("own:1", "2")
		m.down["own:1"]()
		m.capabilities.Set(nil)
		m.at(m.addresses[0], "3")
		// One that says that it is ready and is not costs the node no contact.
		m.curatorAt("i2", "own:1")
		time.Sleep(10 * time.Minute)
		m.at(m.addresses[0], "4")
		m.up("own:1")
		m.at("own:1", "5")
		end()
	})
}

func TestAnOlderRecordOfAnotherCuratorIsNotBelieved(t *testing.T) {
	withCurators(t, 3, func(t *testing.T, m *many) {
		first, behind, last := m.addresses[0], m.addresses[1], m.addresses[2]
		m.curators[first].view.Set(m.directory(9, m.addresses...))
		m.curators[last].view.Set(m.directory(9, m.addresses...))
		defer m.run()() // after them: it is not to see what they had before
		m.at(first, "1")
		views := m.client.View().Watch()
		_, _ = views.Latest()
		m.down[first]()
		m.at(last, "2")
		if m.curators[behind].count("Watch") == 0 {
			t.Error("the curator that is behind was not asked")
		}
		select {
		case <-views.Changed():
			view, _ := views.Latest()
			t.Errorf("the view has changed: %+v", view)
		default:
		}
		// A store that was restored from a copy is the truth in the end.
		m.down[last]()
		await(t, m.client.View(), func(v *cluster.View) bool { return v.Revision == 7 })
		m.at(behind, "3")
	})
}

func TestWithoutAnyCuratorTheReasonNamesThemAll(t *testing.T) {
	withCurators(t, 3, func(t *testing.T, m *many) {
		defer m.run()()
		m.contact(true)
		for i, address := range m.addresses {
			if i == 0 {
				m.curators[address].set(func(r *rules) { r.refuse = status.Error(codes.Unavailable, "the store has no quorum") })
			} else {
				m.down[address]()
			}
		}
		m.contact(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		end := m.unbroken() // in the same words as long as nothing else happens
		contact, _ := m.client.Contact().Get()
		for _, part := range append(slices.Clone(m.addresses), "no heartbeat has reached the cluster since", "none of 3 curators works", "the store has no quorum", "connection refused") {
			if !strings.Contains(contact.Reason, part) {
				t.Errorf("the reason %q does not say %q", contact.Reason, part)
			}
		}
		dials := m.net.dialled()
		time.Sleep(4 * time.Minute)
		if n := m.net.dialled() - dials; n > 360 {
			t.Errorf("%d connections in 4 minutes", n)
		}
		end()
		m.up(m.addresses[2])
		began := time.Now()
		m.contact(true)
		// On the fake clock: the curators take their turns, with a pause of 1 to 3 s before each.
		if took := time.Since(began); took > time.Duration(len(m.addresses))*3*time.Second {
			t.Errorf("contact came back after %v", took)
		}
	})
}

// Whatever the network does, contact is not lost more than once in half of a TTL.
func TestContactDoesNotFlap(t *testing.T) {
	withCurators(t, 2, func(t *testing.T, m *many) {
		defer m.run()()
		m.contact(true)
		began, changes, was := time.Now(), m.client.Contact().Watch(), true
		losses := 0
		for time.Since(began) < 10*time.Minute {
			for i, address := range m.addresses {
				m.net.freezeAt(address, time.Since(began)/(7*time.Second)%3 != time.Duration(i))
			}
			time.Sleep(500 * time.Millisecond)
			if contact, _ := changes.Latest(); contact.OK != was {
				if was = contact.OK; !was {
					losses++
				}
			}
		}
		if losses > int(10*time.Minute/(ttl/2)) {
			t.Errorf("contact was lost %d times in 10 minutes", losses)
		}
		for _, address := range m.addresses {
			m.net.freezeAt(address, false)
		}
		m.contact(true)
	})
}

func TestCuratorsAreKeptFromOneStartToTheNext(t *testing.T) {
	withCurators(t, 2, func(t *testing.T, m *many) {
		file := filepath.Join(t.TempDir(), "curators.json")
		m.again(func(c *cluster.Config) { c.Kept = file })
		stop := m.run()
		m.contact(true)
		for range 100 {
			if _, err := os.Stat(file); err == nil {
				break
			}
			time.Sleep(time.Second)
		}
		stop()
		for _, content := range []string{"", "not what was written"} {
			m.again(func(c *cluster.Config) { c.Known = knowsNone })
			if content != "" {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				m.again(func(c *cluster.Config) { c.Known = func() []string { return m.addresses[1:] } })
			}
			m.client.View().Set(nil)
			stop := m.run()
			await(t, m.client.Curators(), func(list []string) bool { return len(list) == 2 })
			m.contact(true)
			stop()
		}
		m.again(func(c *cluster.Config) { c.Known = knowsNone })
		defer m.run()()
		m.contact(true)
	})
}

func TestBeforeTheDirectoryThereAreTheCuratorsFromEarlier(t *testing.T) {
	withCurators(t, 2, func(t *testing.T, m *many) {
		for _, address := range m.addresses {
			m.net.freezeAt(address, true)
		}
		defer m.run()()
		await(t, m.client.Curators(), func(list []string) bool { return slices.Equal(list, m.addresses) })
		if contact, _ := m.client.Contact().Get(); contact == (membership.Contact{}) {
			t.Error("contact without a reason")
		}
	})
}

// A node that knows no curator at its present address finds one on the machines that its operator names, at the port at which curators were.
func TestCuratorsOnPeers(t *testing.T) {
	withCurators(t, 1, func(t *testing.T, m *many) {
		host, port, err := net.SplitHostPort(m.addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		peers := event.New([]string{"nobody"})
		m.again(func(c *cluster.Config) {
			c.Known, c.Peers = func() []string { return []string{net.JoinHostPort("former", port)} }, peers
		})
		defer m.run()()
		m.contact(false)
		peers.Set([]string{"nobody", host})
		m.at(m.addresses[0], "1")
	})
}
