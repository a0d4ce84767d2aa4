package nodes

import (
	"crypto/sha256"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// mostMissing is how many parts of a sandbox a node may say that it cannot enforce: more than there are.
const mostMissing = 64

// mostOfStorage is how many sources of its CUK, and how many weaknesses, a node may name: more than there are.
const mostOfStorage = 32

// mostPins is how many certificates of the cluster CA a node may say that it trusts: more than there ever are.
const mostPins = 16

// checkStatus returns what is wrong with a status. All of it is shown to every node of the cluster.
func checkStatus(field string, status *clusterv1.NodeStatus) (problems rules.Problems) {
	add := func(field, format string, args ...any) {
		problems = append(problems, rules.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	bounded := func(field, text string) {
		if len(text) > limits.ReportedText {
			add(field, "it has %d bytes, at most %d fit", len(text), limits.ReportedText)
		}
	}
	if status == nil {
		add(field, "there is no status")
		return problems
	}
	if size := proto.Size(status); size > limits.Report {
		add(field, "it has %d bytes, at most %d fit", size, limits.Report)
		return problems
	}
	if n := len(status.GetAddresses()); n > limits.ReportedAddresses {
		add(field+".addresses", "there are %d addresses, at most %d fit", n, limits.ReportedAddresses)
	}
	for i, address := range status.GetAddresses() {
		if _, err := netip.ParseAddr(address); err != nil {
			add(fmt.Sprintf("%s.addresses[%d]", field, i), "it is not an IP address")
		}
	}
	bounded(field+".api_address", status.GetApiAddress())
	bounded(field+".volume", status.GetVolume())
	bounded(field+".version", status.GetVersion())
	bounded(field+".problem", status.GetProblem())
	if n := len(status.GetMissing()); n > mostMissing {
		add(field+".missing", "there are %d parts of a sandbox, at most %d fit", n, mostMissing)
		return problems
	}
	for i, missing := range status.GetMissing() {
		if name := missing.GetName(); name == "" || len(name) > limits.Name || !limits.Line(name) {
			add(fmt.Sprintf("%s.missing[%d].name", field, i), "it has %d bytes, want one line of 1 to %d", len(name), limits.Name)
		}
		bounded(fmt.Sprintf("%s.missing[%d].reason", field, i), missing.GetReason())
	}
	bounded(field+".membership.reason", status.GetMembership().GetReason())
	problems = append(problems, checkStorage(field+".storage", status.GetStorage())...)
	if n := len(status.GetCaPins()); n > mostPins {
		add(field+".ca_pins", "there are %d certificates of the CA, at most %d fit", n, mostPins)
	}
	for i, pin := range status.GetCaPins() {
		if len(pin) != sha256.Size {
			add(fmt.Sprintf("%s.ca_pins[%d]", field, i), "it has %d bytes, want the %d of a SHA-256", len(pin), sha256.Size)
		}
		if i == mostPins {
			break
		}
	}
	if n := len(status.GetInstances()); n > limits.ReportedInstances {
		add(field+".instances", "there are %d instances, a node runs at most %d roles", n, limits.ReportedInstances)
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
		if _, known := clusterv1.Tier_name[int32(instance.GetTier())]; !known {
			add(at+".tier", "%d is not a tier of a sandbox", instance.GetTier())
		}
		if !limits.StopGraceOK(instance.GetStopGrace()) {
			add(at+".stop_grace", "%s is not %s to %s", instance.GetStopGrace().AsDuration(), limits.MinStopGrace, limits.MaxStopGrace)
		}
		bounded(at+".rolled_back.version", instance.GetRolledBack().GetVersion())
		bounded(at+".rolled_back.digest", instance.GetRolledBack().GetDigest())
		bounded(at+".rolled_back.reason", instance.GetRolledBack().GetReason())
		if n := len(instance.GetEndpoints()); n > limits.Endpoints {
			add(at+".endpoints", "there are %d endpoints, at most %d fit", n, limits.Endpoints)
		}
		for j, endpoint := range instance.GetEndpoints() {
			name, address := endpoint.GetName(), endpoint.GetAddress()
			if name == "" || len(name) > limits.Name {
				add(fmt.Sprintf("%s.endpoints[%d].name", at, j), "it has %d bytes, want 1 to %d", len(name), limits.Name)
			}
			if len(address) > limits.Address {
				add(fmt.Sprintf("%s.endpoints[%d].address", at, j), "it has %d bytes, at most %d fit", len(address), limits.Address)
			}
		}
		if n := len(instance.GetValues()); n > limits.Values {
			add(at+".values", "there are %d published values, at most %d fit", n, limits.Values)
			continue
		}
		for name, value := range instance.GetValues() {
			if name == "" || len(name) > limits.Name {
				add(at+".values", "the name of a published value has %d bytes, want 1 to %d", len(name), limits.Name)
			}
			if len(value) > limits.Value {
				add(at+".values", "a published value has %d bytes, at most %d fit", len(value), limits.Value)
			}
		}
	}
	return problems
}

// checkStorage checks what a node says of its volume. What of it this version does not know is kept for those that do.
func checkStorage(field string, storage *clusterv1.StorageStatus) (problems rules.Problems) {
	bounded := func(field, text string) {
		if len(text) > limits.ReportedText {
			problems = append(problems, rules.Problem{Field: field, Message: fmt.Sprintf("it has %d bytes, at most %d fit", len(text), limits.ReportedText)})
		}
	}
	for _, given := range []struct{ name, text string }{
		{"kind", storage.GetKind()}, {"location", storage.GetLocation()}, {"sealer", storage.GetSealer()}, {"step", storage.GetStep()}, {"problem", storage.GetProblem()},
	} {
		bounded(field+"."+given.name, given.text)
	}
	if most := max(len(storage.GetSources()), len(storage.GetWeaknesses())); most > mostOfStorage {
		return append(problems, rules.Problem{Field: field, Message: fmt.Sprintf("there are %d sources or weaknesses, at most %d fit", most, mostOfStorage)})
	}
	for i, source := range storage.GetSources() {
		bounded(fmt.Sprintf("%s.sources[%d].name", field, i), source.GetName())
		bounded(fmt.Sprintf("%s.sources[%d].reason", field, i), source.GetReason())
	}
	for i, weakness := range storage.GetWeaknesses() {
		bounded(fmt.Sprintf("%s.weaknesses[%d]", field, i), weakness)
	}
	return problems
}
