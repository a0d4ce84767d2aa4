package nodes_test

import (
	"context"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
)

// takenRole shows that an SVID is worth nothing any more once its role is taken from the node, which goes on: connections by it end, and there are no new ones, though it is valid for most of an hour.
func takenRole(t *testing.T, c *couriers) {
	const loses = 2
	own := steal(t, c.Cluster, loses)
	own.stealRoles(t, c.Cluster, loses)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var tries []attempt
	ended := make(chan figure, 2)
	for _, number := range c.others(loses) {
		now, _ := fleet.Status(t, c.Cluster, number)
		for _, endpoint := range now.Role("courier").Endpoints {
			if endpoint.Name != "post" {
				continue
			}
			try := connecting("the courier of node "+c.id(number), endpoint.Address, own.role, answeredProtocol)
			wait, err := try.open(ctx)
			if err != nil {
				t.Fatalf("%s, before the role is taken: %v", try.what, err)
			}
			go func() { why := wait(); ended <- figure{what: try.what, at: time.Now(), why: why} }()
			tries = append(tries, try)
		}
	}
	if len(tries) != cap(ended) {
		t.Fatalf("%d couriers serve", len(tries))
	}
	c.MustReeve(t, "node", "role", "remove", c.id(loses), "courier", "--wipe", "--yes", "--wait=false")
	acknowledged := time.Now()
	for range tries {
		select {
		case f := <-ended:
			t.Logf("%8.3f s  %s: %v", f.at.Sub(acknowledged).Seconds(), f.what, f.why)
		case <-ctx.Done():
			t.Fatal("a connection by the SVID of a role that the node has no more stays open")
		}
	}
	for _, try := range tries {
		if try.refused(ctx) == nil {
			t.Errorf("%s: let in again", try.what)
		}
	}
	fleet.AwaitStatus(t, c.Cluster, loses, "it has no courier", func(status devcluster.Status) bool {
		return status.Up("hostsfile") && status.Role("courier").Role == ""
	})
	c.MustReeve(t, "node", "role", "add", c.id(loses), "courier")
	for number := 1; number <= 3; number++ {
		fleet.AwaitStatus(t, c.Cluster, number, "its courier is connected with the others again", func(status devcluster.Status) bool {
			return status.Up("courier") && c.connected(status, c.others(number)...)
		})
	}
}
