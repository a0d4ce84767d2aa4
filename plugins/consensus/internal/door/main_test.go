package door_test

import (
	"os"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) {
	if rehearsal.Is(os.Args) {
		os.Exit(rehearsal.Main())
	}
	if os.Getenv(connectHelper) != "" {
		runConnectHelper()
		return
	}
	leaktest.VerifyTestMain(m)
}
