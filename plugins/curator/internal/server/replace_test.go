package server_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// TestReplaceStoreMember notes for the store which member is to go, as long as the others could decide that, and refuses it with names otherwise.
func TestReplaceStoreMember(t *testing.T) {
	c := newCluster(t)
	replace := func(id string, dry bool) (*clusterv1.NodeRecord, error) {
		response, err := c.asOwner().ReplaceStoreMember(t.Context(), &clusterv1.ReplaceStoreMemberRequest{NodeId: id, DryRun: dry})
		return response.GetNode(), err
	}
	c.tell(c.id)
	_, err := replace(c.id, false)
	wantCode(t, err, codes.FailedPrecondition, "the only one", "from a snapshot")

	second, third := identity.NodeID(public(c.secondNode("store", "api"))), identity.NodeID(public(c.secondNode("store", "api")))
	c.tell(c.id, second, third+" joining")
	_, err = replace(third, false)
	wantCode(t, err, codes.FailedPrecondition, "has no member")
	c.tell(c.id, second, third+" silent")
	_, err = replace(second, true)
	wantCode(t, err, codes.FailedPrecondition, "no quorum", "those of "+third)
	if record, err := replace(third, true); err != nil || record.GetReplacedMember() != "m"+third {
		t.Errorf("a member that does not answer, for a try: %v, %v", record, err)
	}
	if _, desired := c.stored(); len(desired.GetReplacedMembers()) != 0 {
		t.Errorf("a dry run changed %v", desired)
	}
	record, err := replace(third, false)
	if err != nil || record.GetReplacedMember() != "m"+third {
		t.Errorf("%v, %v", record, err)
	}
	if _, desired := c.stored(); !slices.Equal(desired.GetReplacedMembers(), []string{"m" + third}) || len(desired.GetMembers()) != 3 {
		t.Errorf("the store is told %v", desired)
	}
	if again, err := replace(third, false); err != nil || again.GetGeneration() != record.GetGeneration() {
		t.Errorf("the same once more: %v, %v", again, err)
	}
	for _, coming := range []string{" joining", " learner"} {
		c.tell(c.id, second, third+coming)
		if again, err := replace(third, false); err != nil || again.GetGeneration() != record.GetGeneration() {
			t.Errorf("once more while the new one is%s: %v, %v", coming, again, err)
		}
	}
	// Of two that are left, each decides together with the one that goes.
	c.tell(c.id, second)
	if record, err := replace(second, true); err != nil || record.GetReplacedMember() != "m"+second {
		t.Errorf("one of two: %v, %v", record, err)
	}
	c.tell(c.id, second+" silent")
	_, err = replace(second, true)
	wantCode(t, err, codes.FailedPrecondition, "no quorum")
	// Whoever replaces one of two that differ says by that which of them is right.
	c.tell(c.id+" doubted", second+" doubted")
	if record, err := replace(second, true); err != nil || record.GetReplacedMember() != "m"+second {
		t.Errorf("one of two that differ: %v, %v", record, err)
	}
	c.tell(c.id, second+" damaged", third)
	_, err = replace(third, true)
	wantCode(t, err, codes.FailedPrecondition, "no quorum", "those of "+second)
}
