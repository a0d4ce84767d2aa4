// The consensus plugin: an etcd of its own for each node that should hold part of the cluster's store, reached only through Unix sockets that each
// let one role instance in.
//
// See internal/service for how it is put together.
package main

import (
	"context"
	"os"

	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
	"github.com/reeveproject/reeve/sdk/role"
)

// What the manifest says. The names are variables so that a build can set others (-ldflags "-X main.roleName=store"): nothing of Reeve
// depends on what the role that provides the store is called.
var (
	pluginName = "consensus"
	roleName   = "consensus"
	version    = "0.1.0"
)

// capability is what the core looks for.
const capability = "reeve.consensus.v1"

func main() {
	if rehearsal.Is(os.Args) {
		os.Exit(rehearsal.Main())
	}
	consensus := service.New()
	role.Serve(role.Plugin{
		Name:    pluginName,
		Version: version,
		Roles: []role.Role{{
			Name:                roleName,
			Summary:             "Holds a part of the cluster's consensus store (etcd)",
			Provides:            []string{capability},
			ConfigurationSchema: configurationSchema,
			// Twice the quota of a store by default: etcd's index and what it sends to a member that is behind are in memory, besides the pages of the database.
			Grants: []role.Grant{role.GrantLimit(map[string]string{"memory": "4Gi"}), role.GrantListen(role.AnyPort), role.GrantConnect(role.AnyPort)},
			// It runs no program but itself, to rehearse snapshots (internal/rehearsal). Its users are reached through Unix sockets, the other members by TCP, as soon as there are any.
			GivesUp: []string{role.GiveUpProcesses},
			// The cluster API needs the store, and the store needs nothing of the cluster: it must be there first, and last.
			StartsFromCache: true,
			InSplit:         role.Continue,
			CheckConfiguration: func(document []byte) error {
				_, err := parseConfiguration(document)
				return err
			},
			Register:    consensus.Register,
			CheckHealth: consensus.CheckHealth,
			Metrics:     consensus.WriteMetrics,
			Run: func(ctx context.Context, host *role.Host) error {
				settings, err := parseConfiguration(host.Configuration())
				if err != nil {
					return err
				}
				checkpoint.Use(host.DataDirectory(), steps.All())
				return consensus.Run(ctx, service.Config{
					Log:              host.Logger(),
					DataDirectory:    host.DataDirectory(),
					RuntimeDirectory: host.RuntimeDirectory(),
					Heartbeat:        settings.heartbeat(),
					Version:          version,
					Election:         settings.election(),
					Quota:            settings.QuotaBytes,
					Reporter:         host,
					Network:          network{host},
					AwaitNodes:       network{host}.await,
					Gone:             network{host}.gone,
					PeerListen:       settings.PeerListen,
				})
			},
		}},
	})
}
