package cache

import (
	"net"
	"slices"
	"strconv"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/proto/limits"
)

// MaxCurators is how many curators a machine is told of at most: one is enough to come to the others.
const MaxCurators = 32

// Curators returns where the cluster's curators are reached, host:port, those of healthy nodes first. Only what a role publishes that provides the cluster API
// counts, or any role could have machines that come turn to it; and one address of each, node by node, or one node could have them turn to nobody else. It is computed
// once, however many ask, and not to be changed.
func (s *Snapshot) Curators() []string {
	s.listing.Do(func() { s.curators = s.listCurators() })
	return s.curators
}

func (s *Snapshot) listCurators() []string {
	var healthy, others [][]string
	for _, node := range s.Directory.GetNodes() {
		var addresses []string
		for _, role := range node.GetRoles() {
			if !s.Provides(role.GetRole(), rules.CapabilityCluster) {
				continue
			}
			for _, endpoint := range role.GetEndpoints() {
				if endpoint.GetName() == rules.CapabilityCluster && reachable(endpoint.GetAddress()) {
					addresses = append(addresses, endpoint.GetAddress())
					break
				}
			}
		}
		if node.GetHealthy() {
			healthy = append(healthy, addresses)
		} else {
			others = append(others, addresses)
		}
	}
	var all []string
	for _, address := range append(inTurn(healthy), inTurn(others)...) {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
		if len(all) == MaxCurators {
			break
		}
	}
	return all
}

// inTurn is the first of each list, sorted, then the second of each, and so on.
func inTurn(lists [][]string) (all []string) {
	for n := 0; ; n++ {
		var round []string
		for _, list := range lists {
			if n < len(list) {
				round = append(round, list[n])
			}
		}
		if len(round) == 0 {
			return all
		}
		slices.Sort(round)
		all = append(all, round...)
	}
}

// reachable reports whether an address is one that can be called.
func reachable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || len(address) > 256 || !limits.Line(address) {
		return false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number != 0
}
