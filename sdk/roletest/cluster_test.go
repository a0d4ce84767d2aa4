package roletest_test

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		greeter()
	}
	leaktest.VerifyTestMain(m)
}

// What an author writes to test what goes between two instances.
func TestTwoInstances(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	lighthouse, ship := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "ship")
	listener, err := lighthouse.Listen(t.Context(), "light", role.AllowRoles("ship"))
	if err != nil {
		t.Fatal(err)
	}
	roletest.AwaitEndpoint(t, ship, cluster.Host(0), "lighthouse", "light")
	conn, err := ship.Dial(t.Context(), "lighthouse", cluster.Host(0).NodeID(), "light")
	if err != nil {
		t.Fatal(err)
	}
	accepted, _ := listener.Accept()
	cluster.Remove(cluster.Host(1))
	_, err = accepted.Read(make([]byte, 1))
	if _, here := conn.Read(make([]byte, 1)); err == nil || here == nil {
		t.Error("the connection outlives the node")
	}
}

// Every cluster is one of its own, and a host tells what the role on it tells.
func TestCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster, other := roletest.NewCluster(t, 3), roletest.NewCluster(t, 1)
	seen := make(map[string]bool)
	for n := range 3 {
		host := cluster.Host(n)
		addresses, _ := host.Network.Get()
		seen[host.NodeID()], seen[addresses[0]] = true, true
		membership, _ := host.Membership.Get()
		mine, _ := other.Host(0).Membership.Get()
		if membership.GetState() != hostv1.MembershipState_MEMBERSHIP_STATE_HOME || membership.GetTrustDomain() == mine.GetTrustDomain() {
			t.Errorf("the membership is %v", membership)
		}
	}
	if len(seen) != 6 {
		t.Errorf("the nodes are not told apart: %v", seen)
	}
	instance := cluster.Host(1).Instance(t, "lighthouse")
	instance.Ready()
	instance.SetValue("height", "30 m")
	cluster.Host(2).Split()
	instance.SetValue("colour", "red")
	if _, err := cluster.Host(0).Directory.Wait(ctx, func(now *hostv1.Directory) bool {
		roles := now.GetNodes()[1].GetRoles()
		return len(roles) == 1 && roles[0].GetState() == hostv1.InstanceState_INSTANCE_STATE_READY && len(roles[0].GetValues()) == 2 &&
			!now.GetNodes()[2].GetHealthy()
	}); err != nil {
		t.Error("the directory does not come to say what the role says")
	}
	if now, _ := cluster.Host(2).Directory.Get(); len(now.GetNodes()[1].GetRoles()) > 0 && len(now.GetNodes()[1].GetRoles()[0].GetValues()) == 2 {
		t.Error("a node that is cut off hears of it")
	}
	cluster.Host(2).Rejoin()
	if now, _ := cluster.Host(2).Directory.Get(); len(now.GetNodes()[1].GetRoles()[0].GetValues()) != 2 || !now.GetNodes()[2].GetHealthy() {
		t.Error("a node that is back does not hear of it")
	}
}

// A single host has a CA too: an instance reaches itself.
func TestHostAlone(t *testing.T) {
	host := roletest.NewHost(t)
	host.Network.Set([]string{"127.0.0.1"})
	instance := host.Instance(t, "lighthouse")
	listener, err := instance.Listen(t.Context(), "light")
	if err != nil {
		t.Fatal(err)
	}
	host.Directory.Set(&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{
		NodeId: host.NodeID(), Healthy: true, Roles: []*hostv1.DirectoryRole{{
			Role: "lighthouse", Endpoints: []*rolev1.Endpoint{{Name: "light", Address: listener.Addr().String()}},
		}},
	}}})
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.WriteString(conn, "light") // the reader checks it
			_ = conn.Close()
		}
	}()
	conn, err := instance.Dial(t.Context(), "lighthouse", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "light" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_ = conn.Close()
}
