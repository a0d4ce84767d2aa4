package consensus_test

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

// A role that keeps its settings in the store.
func Example() {
	role.Serve(role.Plugin{
		Name: "keeper", Version: "0.1.0",
		Roles: []role.Role{{
			Name: "keeper", ConsensusUser: "keeper",
			Run: func(ctx context.Context, host *role.Host) error {
				store, err := consensus.Dial(ctx, host)
				if err != nil {
					return err
				}
				defer func() { _ = store.Close() }()
				settings := store.Sub("settings").Watch(ctx, "", clientv3.WithPrefix())
				host.Ready()
				for change := range settings {
					host.Logger().Info("settings have changed", "revision", change.Header.Revision)
				}
				return ctx.Err()
			},
		}},
	})
}
