package store_test

import (
	"os"
	"testing"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(formHelper) != "" {
		runFormHelper()
		return
	}
	leaktest.VerifyTestMain(m)
}
