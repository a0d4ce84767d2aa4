package roletest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/internal/exampletest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// The test's binary is the plugin that the tests launch, if this environment variable is set.
const asPlugin = "REEVE_TEST_PLUGIN"

// greeter is the plugin that is tested. Its main would do no more than call it.
func greeter() {
	role.Serve(role.Plugin{Name: "greeter", Version: "0.1.0", Roles: []role.Role{{Name: "greeter", Run: func(ctx context.Context, host *role.Host) error {
		host.SetValue("greeting", "good evening")
		host.Ready()
		<-ctx.Done()
		return nil
	}}}})
}

// A test of a role, as an author writes it. Its TestMain calls the plugin's main if the variable is set.
func ExampleLaunchTest() {
	exampletest.Run(func(t testing.TB) { // in a test: func TestGreets(t *testing.T)
		host, process := roletest.NewHost(t), roletest.LaunchTest(t, asPlugin+"=1")
		if err := process.Start(host, "greeter", ""); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s\n", process.AwaitReady().GetValues()["greeting"])
		if err := process.Stop(10 * time.Second); err != nil {
			t.Error(err)
		}
		fmt.Println("exit status", process.Exit())
	})
	// Output:
	// good evening
	// exit status 0
}
