package rules

import (
	"slices"
	"strings"

	"filippo.io/age"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// CUKCluster is the source that is the cluster itself: a curator gives a node its CUK once the node's join key has proved it.
const CUKCluster = "cluster"

// CUKRecovery is the source that a policy cannot take away: what is left when all others are.
const CUKRecovery = "recovery"

// cukSources is from where a node may get the cluster's half of the key of its volume (CUK), sorted.
var cukSources = []string{CUKCluster, CUKRecovery, "tpm"}

// Policy checks what is to be demanded of all nodes.
func Policy(field string, policy *clusterv1.ClusterPolicy) (problems Problems) {
	switch policy.GetIsolation() {
	case clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED:
	default:
		problems.add(field+".isolation", "the isolation of roles is best effort or required")
	}
	switch policy.GetConformance() {
	case clusterv1.ConformancePolicy_CONFORMANCE_POLICY_UNSPECIFIED, clusterv1.ConformancePolicy_CONFORMANCE_POLICY_OPTIONAL, clusterv1.ConformancePolicy_CONFORMANCE_POLICY_REQUIRED:
	default:
		problems.add(field+".conformance", "reports of the conformance suite are optional or required")
	}
	problems = append(problems, SnapshotSchedule(field+".snapshots", policy.GetSnapshots())...)
	problems = append(problems, Recipient(field+".recovery_recipient", policy.GetRecoveryRecipient())...)
	// Nobody can mean more than there are, and the answer to what is too long is to be short.
	if named := len(policy.GetCukSources()); named > len(cukSources) {
		problems.add(field+".cuk_sources", "it names %d sources, and there are %d: %s", named, len(cukSources), strings.Join(cukSources, ", "))
		return problems
	}
	for _, source := range policy.GetCukSources() {
		if !slices.Contains(cukSources, source) {
			problems.add(field+".cuk_sources", "%s is not a source of a node's CUK: there are %s; none allows all of them", quote(source), strings.Join(cukSources, ", "))
		}
	}
	return problems
}

// Recipient checks the public half of a recovery key; empty: there is none.
func Recipient(field, text string) (problems Problems) {
	var err error
	switch {
	case text == "":
	case strings.HasPrefix(text, "age1pq1"):
		_, err = age.ParseHybridRecipient(text)
	default:
		_, err = age.ParseX25519Recipient(text)
	}
	if err != nil {
		// The parser's error is left out: a private half that was given by mistake could be in it.
		problems.add(field, "it is not the public half of a recovery key, which begins with age1")
	}
	return problems
}

// CUKSources is what a policy says that allows these sources of the CUK: sorted, each once, and with the one that is always allowed. None: all are.
func CUKSources(wanted []string) []string {
	if len(wanted) == 0 {
		return nil
	}
	sources := append(slices.Clone(wanted), CUKRecovery)
	slices.Sort(sources)
	return slices.Compact(sources)
}

// AllowsCUK reports whether a policy allows a source of the CUK.
func AllowsCUK(policy *clusterv1.ClusterPolicy, source string) bool {
	return len(policy.GetCukSources()) == 0 || slices.Contains(policy.GetCukSources(), source)
}
