package role_test

import (
	"context"

	"github.com/reeveproject/reeve/sdk/role"
)

// A whole plugin: its one role says that it is there, and goes on until it is stopped.
func Example() {
	role.Serve(role.Plugin{
		Name: "hello", Version: "0.1.0",
		Roles: []role.Role{{
			Name: "hello",
			Run: func(ctx context.Context, host *role.Host) error {
				host.Logger().Info("hello", "node", host.NodeID())
				host.Ready()
				<-ctx.Done()
				return nil
			},
		}},
	})
}
