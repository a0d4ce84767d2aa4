package role

import (
	"fmt"
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

// All that an instance publishes has a bound together, and what was there before stays.
func TestPublishedTogether(t *testing.T) {
	status := newStatus(&rolev1.StartRequest{})
	for n := range 7 {
		if !status.setValue(fmt.Sprint(n), strings.Repeat("x", limits.Value)) {
			t.Fatalf("value %d did not fit", n)
		}
	}
	if status.setValue("more", strings.Repeat("x", limits.Value)) {
		t.Error("more than 32 KiB were taken")
	}
	if !status.setValue("6", "small") || !status.setValue("more", "small") || !status.setEndpoint("http", "127.0.0.1:1") {
		t.Error("what fits was not taken")
	}
	for n := range limits.Endpoints - 1 {
		status.setEndpoint(fmt.Sprint("e", n), strings.Repeat("a", limits.Address))
	}
	now, _ := status.value.Get()
	if size := published(now); size > limits.Published || size < limits.Published-limits.Address-limits.Name-16 || len(now.GetValues()) != 8 {
		t.Errorf("%d bytes, %d values", size, len(now.GetValues()))
	}
}
