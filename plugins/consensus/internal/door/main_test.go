package door_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(connectHelper) != "" {
		runConnectHelper()
		return
	}
	goleak.VerifyTestMain(m)
}
