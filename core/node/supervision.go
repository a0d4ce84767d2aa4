package node

import (
	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// budgets returns the crash budget of each role as the parameters say.
func budgets(supervision *nodev1.Supervision) func(role string) roles.Budget {
	common := budget(supervision.GetCrashBudget(), roles.Budget{Failures: roles.DefaultBudgetFailures, Window: roles.DefaultBudgetWindow})
	own := make(map[string]roles.Budget)
	for _, role := range supervision.GetRoles() {
		own[role.GetRole()] = budget(role.GetCrashBudget(), common)
	}
	return func(role string) roles.Budget {
		if b, ok := own[role]; ok {
			return b
		}
		return common
	}
}

// budget is what is set of a crash budget, and otherwise what the fallback says.
func budget(set *nodev1.CrashBudget, fallback roles.Budget) roles.Budget {
	if set != nil && set.Failures != nil {
		fallback.Failures = int(set.GetFailures())
	}
	if window := set.GetWindow(); window != nil {
		fallback.Window = window.AsDuration()
	}
	return fallback
}

// liveness is how roles that do not answer are found; what is not set is left to the reconciler's defaults.
func liveness(set *nodev1.Liveness) roles.Liveness {
	return roles.Liveness{Interval: set.GetInterval().AsDuration(), Timeout: set.GetTimeout().AsDuration()}
}
