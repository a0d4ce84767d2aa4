package node

import (
	"net"
	"strings"
	"testing"

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
