// The plugin archive copies the scheduled snapshots of a node away from it: into a directory, or into an S3-compatible bucket. Its README is the manual.
package main

import (
	"context"

	"github.com/reeveproject/reeve/plugins/archive/internal/configuration"
	"github.com/reeveproject/reeve/plugins/archive/internal/keeper"
	archivev1 "github.com/reeveproject/reeve/proto/reeve/archive/v1"
	"github.com/reeveproject/reeve/sdk/role"
)

const version = "0.1.0"

func main() {
	k := keeper.New()
	role.Serve(role.Plugin{
		Name: "archive", Version: version,
		Roles: []role.Role{{
			Name:          archivev1.Role,
			Summary:       "copies the scheduled snapshots of its node into a directory or an S3-compatible bucket",
			Requires:      []string{"reeve.cluster.v1"},
			Grants:        configuration.Grants(),
			GivesUp:       []string{role.GiveUpProcesses},
			Configuration: configuration.Schema,
			CheckGrants:   configuration.CheckGrants,
			// What is on the node can be copied without the cluster too.
			InSplit: role.Told,
			Metrics: k.WriteMetrics,
			Run:     func(ctx context.Context, host *role.Host) error { return k.Run(ctx, host) },
		}},
	})
}
