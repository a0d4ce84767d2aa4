// The plugin hello has roles that do nothing: what it takes to run one is what the core and the SDK take.
package main

import (
	"context"
	"fmt"

	"github.com/reeveproject/reeve/sdk/role"
)

// crowd is how many roles there are besides hello, for what is measured while many run: hello-0 and so on.
const crowd = 50

func main() {
	roles := []role.Role{idle("hello")}
	for n := range crowd {
		roles = append(roles, idle(fmt.Sprintf("hello-%d", n)))
	}
	role.Serve(role.Plugin{Name: "hello", Version: "0.1.0", Roles: roles})
}

func idle(name string) role.Role {
	return role.Role{
		Name: name, Summary: "does nothing",
		Run: func(ctx context.Context, host *role.Host) error {
			host.Ready()
			<-ctx.Done()
			return nil
		},
	}
}
