// The plugin hello has a role that does nothing: what it takes to run it is what the core and the SDK take.
package main

import (
	"context"

	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	role.Serve(role.Plugin{
		Name: "hello", Version: "0.1.0",
		Roles: []role.Role{{
			Name: "hello", Summary: "does nothing",
			Run: func(ctx context.Context, host *role.Host) error {
				host.Ready()
				<-ctx.Done()
				return nil
			},
		}},
	})
}
