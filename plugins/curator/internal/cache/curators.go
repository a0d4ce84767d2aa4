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
// counts, or any role could have machines that come turn to it.
func (s *Snapshot) Curators() []string {
	var healthy, others []string
	for _, node := range s.Directory.GetNodes() {
		for _, role := range node.GetRoles() {
			if !s.Provides(role.GetRole(), rules.CapabilityCluster) {
				continue
			}
			for _, endpoint := range role.GetEndpoints() {
				if endpoint.GetName() != rules.CapabilityCluster || !reachable(endpoint.GetAddress()) {
					continue
				}
				if node.GetHealthy() {
					healthy = append(healthy, endpoint.GetAddress())
				} else {
					others = append(others, endpoint.GetAddress())
				}
			}
		}
	}
	slices.Sort(healthy)
	slices.Sort(others)
	all := slices.Compact(healthy)
	for _, address := range slices.Compact(others) {
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all[:min(len(all), MaxCurators)]
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
