package store_test

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
	if os.Getenv(formHelper) != "" {
		runFormHelper()
		return
	}
	if os.Getenv(snapshotHelper) != "" {
		runSnapshotHelper()
		return
	}
	// With this, etcd panics if anything but the applying of a request takes the lock of its writes. A write outside of a request, followed by a kill, would make this member
	// differ from the others.
	if err := os.Setenv("ETCD_VERIFY", "lock"); err != nil {
		panic(err)
	}
	leaktest.VerifyTestMain(m)
}
