// Command needy is a plugin for tests. Its role reads from the store all the time, and ends with an error as soon as it cannot.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/reeveproject/reeve/sdk/consensus"
	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	role.Serve(role.Plugin{
		Name:    "needy",
		Version: "0.1.0",
		Roles:   []role.Role{{Name: "needy", Summary: "Ends when it cannot read", ConsensusUser: "needy", Run: run}},
	})
}

func run(ctx context.Context, host *role.Host) error {
	kv, err := consensus.Dial(ctx, host)
	if err != nil {
		return err
	}
	defer kv.Close()
	for every := time.NewTicker(200 * time.Millisecond); ; {
		reading, cancel := context.WithTimeout(ctx, time.Second)
		_, err := kv.Get(reading, "key")
		cancel()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("cannot read from the store: %w", err)
		}
		host.Ready()
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
}
