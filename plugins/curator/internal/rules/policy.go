package rules

import clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"

// Policy checks what is to be demanded of all nodes.
func Policy(field string, policy *clusterv1.ClusterPolicy) (problems Problems) {
	switch policy.GetIsolation() {
	case clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, clusterv1.IsolationPolicy_ISOLATION_POLICY_REQUIRED:
	default:
		problems.add(field+".isolation", "the isolation of roles is best effort or required")
	}
	return problems
}
