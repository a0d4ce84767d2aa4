package node

import (
	"net"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/membership"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestMetricsAddressThatIsTaken has a node say that it is degraded for as long as somebody else has its address for metrics.
func TestMetricsAddressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	a := newAlive(t, plain())
	a.parameters.Metrics = &nodev1.Metrics{Listen: address}
	a.start()
	a.until("degraded", func(s *nodev1.Status) bool {
		problem := s.GetNode().GetProblem()
		return strings.Contains(problem, address) && strings.Contains(problem, "metrics.listen")
	})
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	a.until("well again", func(s *nodev1.Status) bool { return s.GetNode() != nil && s.GetNode().GetProblem() == "" })
	if err := a.end(); err != nil {
		t.Error(err)
	}
}

// TestAPIAddress: a machine that becomes a node refuses an address on which somebody else listens. One that is a member runs without it: a role may have taken it while no core
// ran. Each runs without an address that the machine does not have.
func TestAPIAddress(t *testing.T) {
	e := newElsewhere(t)
	a, _ := newNewcomer(t, e)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	a.parameters.Network = &nodev1.Network{ApiListen: address}
	a.start()
	if err := <-a.ended; err == nil || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "network.api_listen") {
		t.Errorf("a machine that is no member yet: %v", err)
	}
	a.parameters.Network = &nodev1.Network{ApiListen: "192.0.2.1:7444"} // of documentation, so no machine's
	a.start()
	a.until("approval", isIn(membership.Foreign, "reeve node approve"))
	a.until("degraded before it is a member", func(s *nodev1.Status) bool {
		problem := s.GetNode().GetProblem()
		return strings.Contains(problem, "192.0.2.1:7444") && strings.Contains(problem, "give the machine the address") && s.GetNode().GetApiAddress() == ""
	})
	e.state.Set(clusterv1.NodeState_NODE_STATE_STANDBY)
	a.until("the cluster", isIn(membership.Home, "member of the cluster"))
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	a.parameters.Network = &nodev1.Network{ApiListen: address}
	a.start()
	a.until("degraded", func(s *nodev1.Status) bool {
		problem := s.GetNode().GetProblem()
		return strings.Contains(problem, address) && strings.Contains(problem, "network.api_listen") && s.GetNode().GetApiAddress() == ""
	})
	a.until("the role", ready)
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	a.until("well again", func(s *nodev1.Status) bool {
		return s.GetNode() != nil && s.GetNode().GetProblem() == "" && s.GetNode().GetApiAddress() == address
	})
	if err := a.end(); err != nil {
		t.Error(err)
	}
}
