package store_test

import (
	"slices"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/proto/identity"
)

// TestAFenceIsNoUserButForVersionsWithoutFences has a name that no ConsensusUser can have, and that a version without fences removes as one that nobody wishes: what it cannot remove
// keeps it from acting upon the document at once.
func TestAFenceIsNoUserButForVersionsWithoutFences(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ctx := storetest.Context(t)
	fence, err := s.Fence(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !identity.ValidName(fence) || fence == store.RootUser {
		t.Errorf("a version without fences cannot remove %s", fence)
	}
	if identity.ValidConsensusUser(fence) || s.EnsureUser(ctx, fence) == nil {
		t.Errorf("%s can be a ConsensusUser", fence)
	}
	if accounts, err := s.Accounts(); err != nil || slices.Contains(accounts, fence) {
		t.Errorf("the accounts are %v, %v", accounts, err)
	}
	if !s.Holds(fence) {
		t.Error("it is not there")
	}
	if _, err := s.Client().UserDelete(store.Root(ctx), fence); err != nil || s.Holds(fence) {
		t.Errorf("it was not removed: %v", err)
	}
}
