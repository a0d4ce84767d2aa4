package role

import (
	"strings"
	"testing"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func TestReasonIsBounded(t *testing.T) {
	status := newStatus(&rolev1.StartRequest{})
	status.enter(rolev1.RoleState_ROLE_STATE_DEGRADED, "not \xff yet"+strings.Repeat("ö", limits.Reason))
	now, _ := status.value.Get()
	if reason := now.GetReason(); !strings.HasPrefix(reason, "not \uFFFD yetöö") || len(reason) > limits.Reason || len(reason) < limits.Reason-1 {
		t.Errorf("the reason has %d bytes: %q", len(reason), reason)
	}
}
