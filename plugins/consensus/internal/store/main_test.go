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
	// etcd then ends whoever takes the lock of its writes as a request that is applied does, and is none: a member that is killed after that differs from the others.
	if err := os.Setenv("ETCD_VERIFY", "lock"); err != nil {
		panic(err)
	}
	leaktest.VerifyTestMain(m)
}
