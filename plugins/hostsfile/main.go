// The plugin hostsfile keeps the nodes of the cluster in the machine's hosts file. Its README is the manual.
package main

import (
	"context"
	"net"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	"github.com/reeveproject/reeve/sdk/role"
)

const version = "0.1.0"

func main() {
	// PreferGo: the resolver of this process, whatever it is built with, which reads the machine's nsswitch.conf.
	k := keeper.New(&net.Resolver{PreferGo: true})
	role.Serve(role.Plugin{
		Name: "hostsfile", Version: version,
		Roles: []role.Role{{
			Name:                "hostsfile",
			Summary:             "keeps the nodes of the cluster in the machine's hosts file, and names the machine",
			Grants:              keeper.Grants(),
			GivesUp:             []string{role.GiveUpProcesses},
			ConfigurationSchema: keeper.Schema,
			CheckConfiguration: func(document []byte) error {
				_, err := keeper.ParseConfiguration(document)
				return err
			},
			CheckGrants: keeper.CheckGrants,
			CheckHealth: k.CheckHealth,
			Run:         func(ctx context.Context, host *role.Host) error { return k.Run(ctx, host) },
		}},
	})
}
