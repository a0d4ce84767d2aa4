package consensustest_test

import (
	"fmt"
	"testing"

	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
	"github.com/reeveproject/reeve/sdk/internal/exampletest"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// A test of a role that uses the store, as an author writes it: with the store that there is, one that goes away and comes back, and a core that dies. The test's own binary is the plugin.
func Example() {
	exampletest.Run(func(t testing.TB) { // in a test: func TestStoreIsLost(t *testing.T)
		host, process := roletest.NewHost(t), roletest.LaunchTest(t, asPlugin+"=1")
		host.OpenStore(consensustest.NewStore(t).Socket(), "gardener")
		if err := process.Start(host, "gardener", ""); err != nil {
			t.Fatal(err)
		}
		fmt.Println(process.AwaitReady().GetState())
		host.LoseStore() // or RevokeStore, or Split
		fmt.Println(process.AwaitDegraded().GetState())
		host.FindStore()
		fmt.Println(process.AwaitReady().GetState())
		process.RestartCore()
		fmt.Println(process.AwaitReady().GetState())
	})
	// Output:
	// ROLE_STATE_READY
	// ROLE_STATE_DEGRADED
	// ROLE_STATE_READY
	// ROLE_STATE_READY
}
