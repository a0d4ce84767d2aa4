package users

import (
	"testing"

	"github.com/reeveproject/reeve/core/usertest"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// TestAsOrdinaryUser runs the test that is for such a user only.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	usertest.RunTests(t, "^TestOrdinaryUsersShare$")
}
