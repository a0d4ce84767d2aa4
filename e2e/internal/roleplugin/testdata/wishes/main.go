// The wishes plugin: three roles that differ in what is to become of them while their node is cut off from its cluster.
package main

import (
	"context"

	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	goes := func(ctx context.Context, host *role.Host) error {
		memberships := host.Membership().Watch()
		host.Ready()
		for {
			now, err := memberships.Next(ctx)
			if err != nil {
				return nil
			}
			// What it is told.
			host.SetValue("membership", now.GetState().String())
		}
	}
	role.Serve(role.Plugin{
		Name: "wishes", Version: "0.1.0",
		Roles: []role.Role{
			{Name: "stopper", Summary: "Is stopped in Split", InSplit: role.Stop, Run: goes},
			{Name: "goer", Summary: "Goes on in Split", InSplit: role.Continue, Run: goes},
			{Name: "listener", Summary: "Is told in Split", InSplit: role.Told, Run: goes},
		},
	})
}
