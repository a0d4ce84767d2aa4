package roles_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestBudgets(t *testing.T) {
	number := func(n uint32) *uint32 { return &n }
	of := roles.Budgets(&nodev1.Supervision{
		CrashBudget: &nodev1.CrashBudget{Failures: number(3)},
		Roles: []*nodev1.RoleSupervision{
			{Role: "never", CrashBudget: &nodev1.CrashBudget{Failures: number(0)}},
			{Role: "long", CrashBudget: &nodev1.CrashBudget{Window: durationpb.New(time.Hour)}},
		},
	})
	for role, want := range map[string]roles.Budget{
		"other": {Failures: 3, Window: roles.DefaultBudgetWindow},
		"never": {Failures: 0, Window: roles.DefaultBudgetWindow},
		"long":  {Failures: 3, Window: time.Hour},
	} {
		if got := of(role); got != want {
			t.Errorf("%s: %+v, want %+v", role, got, want)
		}
	}
	if got := roles.Budgets(nil)("any"); got.Failures != roles.DefaultBudgetFailures || got.Window != roles.DefaultBudgetWindow {
		t.Errorf("without parameters: %+v", got)
	}
}
