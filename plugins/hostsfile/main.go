// The plugin hostsfile keeps the nodes of the cluster in the machine's hosts file. Its README is the manual.
package main

import (
	"context"

	"github.com/reeveproject/reeve/plugins/hostsfile/keeper"
	"github.com/reeveproject/reeve/sdk/role"
)

const version = "0.1.0"

func main() {
	role.Serve(role.Plugin{
		Name: "hostsfile", Version: version,
		Roles: []role.Role{{
			Name:                "hostsfile",
			Summary:             "keeps the nodes of the cluster in the machine's hosts file",
			Grants:              []role.Grant{{Name: "replace-file", Parameters: map[string]string{"path": keeper.DefaultPath}}},
			ConfigurationSchema: keeper.Schema,
			CheckConfiguration: func(document []byte) error {
				_, err := keeper.ParseConfiguration(document)
				return err
			},
			Run: func(ctx context.Context, host *role.Host) error { return keeper.Run(ctx, host) },
		}},
	})
}
