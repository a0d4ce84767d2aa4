package usertest_test

import (
	"os"
	"testing"

	"github.com/reeveproject/reeve/core/usertest"
)

func TestNew(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives itself users")
	}
	if one, other := usertest.New(t), usertest.New(t); one == other {
		t.Errorf("twice user %d", one)
	}
}
