package store

import (
	"testing"

	"github.com/reeveproject/reeve/core/usertest"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// TestAsOrdinaryUser runs the other tests once more, as a user who is nobody in particular.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	usertest.RunTests(t, "^Test[B-Z]")
}
