package door_test

import (
	"os"
	"testing"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(connectHelper) != "" {
		runConnectHelper()
		return
	}
	leaktest.VerifyTestMain(m)
}
