// The plugin benchstore has a role that puts loads on its part of the store, as its endpoint "http" is asked to.
package main

import (
	"context"
	"net"

	"github.com/reeveproject/reeve/e2e/bench/load"
	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	role.Serve(role.Plugin{
		Name: "benchstore", Version: "0.1.0",
		Roles: []role.Role{{
			Name: "benchstore", Summary: "puts loads on its part of the store", ConsensusUser: "benchstore", Requires: []string{"reeve.consensus.v1"},
			// It is told over HTTP what to do, and may be told to store much.
			Grants: []role.Grant{role.GrantListen(role.AnyPort), role.GrantLimit(map[string]string{"store-bytes": "1Gi"})},
			Run:    run,
		}},
	})
}

func run(ctx context.Context, host *role.Host) error {
	store, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := load.Fill(ctx, store.KV); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	host.SetEndpoint("http", "http://"+listener.Addr().String()+"/")
	host.Ready()
	return load.Serve(ctx, listener, store.KV)
}
