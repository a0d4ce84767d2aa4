package nodes_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/fleet"
	"github.com/reeveproject/reeve/proto/identity"
)

// workloadAPI looks at what a library of SPIFFE is given by the Workload API, which it finds by its environment alone: who the role is, and another SVID when the
// cluster has another CA, on every node and without a connection that ends.
func workloadAPI(t *testing.T, c *couriers) {
	first, _ := fleet.Status(t, c.Cluster, 1)
	domain := identity.TrustDomain(first.Cluster.ID)
	before := make(map[int]map[string]string)
	for number := 1; number <= 3; number++ {
		status, seen := fleet.Status(t, c.Cluster, number)
		values := status.Role("courier").Values
		if want := identity.RoleURI(domain, c.id(number), "courier").String(); values["id"] != want || values["bundle"] != "1" {
			t.Fatalf("the courier of node %d is %q by the Workload API, with %s authorities, and not %s with one: %s", number, values["id"], values["bundle"], want, seen)
		}
		if processes := fleet.Instance(t, c.Cluster, c.id(number), "courier"); len(processes) != 1 || !strings.HasPrefix(processes[0].Variable("SPIFFE_ENDPOINT_SOCKET"), "unix:///") {
			t.Errorf("SPIFFE_ENDPOINT_SOCKET of the courier of node %d: %v", number, processes)
		}
		before[number] = values
	}
	began := time.Now()
	for _, step := range []string{"prepare", "activate"} {
		eventually.True(t, time.Minute, step, func() (bool, string) {
			result := c.Reeve(t, "cert", "rotate", step)
			return result.Code == 0, result.String()
		})
	}
	for number := 1; number <= 3; number++ {
		fleet.AwaitStatus(t, c.Cluster, number, "its courier has an SVID of the new CA", func(status devcluster.Status) bool {
			values := status.Role("courier").Values
			times, _ := strconv.Atoi(values["times"])
			return values["authority"] != before[number]["authority"] && values["serial"] != before[number]["serial"] && values["id"] == before[number]["id"] &&
				values["bundle"] == "2" && times > 1 && status.Up("courier") && c.connected(status, c.others(number)...)
		})
	}
	t.Logf("all couriers had an SVID of the new CA %s after it was asked for", time.Since(began).Round(time.Millisecond))
}
