package nodes

import (
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Limits of what a node may report. All of it is shown to every node of the cluster.
const (
	maxStatus    = 512 << 10
	maxAddresses = 64
	maxEndpoints = 64
	maxValues    = 32
	maxValue     = 4096
	maxText      = 4096
)

// checkStatus returns what is wrong with a status.
func checkStatus(field string, status *clusterv1.NodeStatus) (problems rules.Problems) {
	add := func(field, format string, args ...any) {
		problems = append(problems, rules.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	bounded := func(field, text string) {
		if len(text) > maxText {
			add(field, "it has %d bytes, at most %d fit", len(text), maxText)
		}
	}
	if status == nil {
		add(field, "there is no status")
		return problems
	}
	if size := proto.Size(status); size > maxStatus {
		add(field, "it has %d bytes, at most %d fit", size, maxStatus)
		return problems
	}
	if n := len(status.GetAddresses()); n > maxAddresses {
		add(field+".addresses", "there are %d addresses, at most %d fit", n, maxAddresses)
	}
	for i, address := range status.GetAddresses() {
		if _, err := netip.ParseAddr(address); err != nil {
			add(fmt.Sprintf("%s.addresses[%d]", field, i), "it is not an IP address")
		}
	}
	bounded(field+".api_address", status.GetApiAddress())
	bounded(field+".volume", status.GetVolume())
	bounded(field+".version", status.GetVersion())
	if n := len(status.GetInstances()); n > rules.MaxRoles {
		add(field+".instances", "there are %d instances, a node runs at most %d roles", n, rules.MaxRoles)
		return problems
	}
	seen := make(map[string]bool)
	for i, instance := range status.GetInstances() {
		at := fmt.Sprintf("%s.instances[%d]", field, i)
		problems = append(problems, rules.RoleName(at+".role", instance.GetRole())...)
		if seen[instance.GetRole()] {
			add(at+".role", "the role %q is listed twice", instance.GetRole())
		}
		seen[instance.GetRole()] = true
		if _, known := hostv1.InstanceState_name[int32(instance.GetState())]; !known || instance.GetState() == hostv1.InstanceState_INSTANCE_STATE_UNSPECIFIED {
			add(at+".state", "%d is not a state of an instance", instance.GetState())
		}
		bounded(at+".reason", instance.GetReason())
		if n := len(instance.GetEndpoints()); n > maxEndpoints {
			add(at+".endpoints", "there are %d endpoints, at most %d fit", n, maxEndpoints)
		}
		for j, endpoint := range instance.GetEndpoints() {
			bounded(fmt.Sprintf("%s.endpoints[%d].name", at, j), endpoint.GetName())
			bounded(fmt.Sprintf("%s.endpoints[%d].address", at, j), endpoint.GetAddress())
		}
		if n := len(instance.GetValues()); n > maxValues {
			add(at+".values", "there are %d published values, at most %d fit", n, maxValues)
			continue
		}
		for name, value := range instance.GetValues() {
			if len(name) > maxValue || len(value) > maxValue {
				add(at+".values", "a published value has %d bytes, at most %d fit", max(len(name), len(value)), maxValue)
			}
		}
	}
	return problems
}
