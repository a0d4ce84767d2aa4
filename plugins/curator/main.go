package main

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/curator/internal/bootstrap"
	"github.com/reeveproject/reeve/plugins/curator/internal/configuration"
	"github.com/reeveproject/reeve/plugins/curator/internal/metrics"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/steps"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

// What the plugin and its role are called. Nothing in Reeve depends on it: the linker may set others (-X main.roleName=…).
var (
	pluginName = "curator"
	roleName   = "curator"
	version    = "0.1.0"
)

// consensusUser is where the cluster's state lies: it stays when the role is called otherwise.
const consensusUser = "curator"

func main() { role.Serve(plugin()) }

func plugin() role.Plugin {
	service := bootstrap.NewService(time.Now)
	counted, health := metrics.New(), new(server.Health)
	return role.Plugin{
		Name: pluginName, Version: version,
		Roles: []role.Role{{
			Name:          roleName,
			Summary:       "Serves the cluster API: nodes, their roles, the catalog, certificates.",
			ConsensusUser: consensusUser,
			Requires:      []string{store.CapabilityConsensus},
			Provides:      []string{rules.CapabilityCluster},
			// The port is configured, so it may be any.
			Grants:              []role.Grant{role.GrantListen(role.AnyPort)},
			GivesUp:             []string{role.GiveUpProcesses},
			ConfigurationSchema: configuration.Schema,
			StartsFromCache:     true,
			InSplit:             role.Continue,
			CheckConfiguration: func(document []byte) error {
				_, err := configuration.Parse(document)
				return err
			},
			Register: func(registrar grpc.ServiceRegistrar) {
				clusterv1.RegisterBootstrapServiceServer(registrar, service)
			},
			Run: func(ctx context.Context, host *role.Host) error {
				return run(ctx, host, server.Config{Bootstrap: service, Metrics: counted, Health: health})
			},
			CheckHealth: health.Check,
			Metrics:     counted.Write,
		}},
	}
}

// run adds to what outlives an instance what comes with its host.
func run(ctx context.Context, host *role.Host, config server.Config) error {
	checkpoint.Use(host.DataDirectory(), steps.All())
	parsed, err := configuration.Parse(host.Configuration())
	if err != nil {
		return err
	}
	client, err := consensus.Dial(ctx, host)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer client.Close()
	config.Client, config.Leases, config.ClusterUser = client.Client, client.LeaseClient(), consensusUser
	config.Snapshots = consensusv1.NewSnapshotServiceClient(client.Connection())
	config.Host, config.Listener, config.NodeID, config.Role = host, host, host.NodeID(), host.Role()
	config.DataDirectory = host.DataDirectory()
	config.Configuration, config.Log = parsed, host.Logger()
	return server.Run(ctx, config)
}
