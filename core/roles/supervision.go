package roles

import nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"

// Budgets returns the crash budget of each role by the parameters.
func Budgets(supervision *nodev1.Supervision) func(role string) Budget {
	common := budgetOf(supervision.GetCrashBudget(), Budget{Failures: DefaultBudgetFailures, Window: DefaultBudgetWindow})
	own := make(map[string]Budget)
	for _, role := range supervision.GetRoles() {
		own[role.GetRole()] = budgetOf(role.GetCrashBudget(), common)
	}
	return func(role string) Budget {
		if budget, ok := own[role]; ok {
			return budget
		}
		return common
	}
}

// budgetOf returns the crash budget that is set, with the fallback for what is not.
func budgetOf(set *nodev1.CrashBudget, fallback Budget) Budget {
	if set != nil && set.Failures != nil {
		fallback.Failures = int(set.GetFailures())
	}
	if window := set.GetWindow(); window != nil {
		fallback.Window = window.AsDuration()
	}
	return fallback
}

// LivenessOf returns the liveness checks by the parameters; 0 for what is not set.
func LivenessOf(set *nodev1.Liveness) Liveness {
	return Liveness{Interval: set.GetInterval().AsDuration(), Timeout: set.GetTimeout().AsDuration()}
}
