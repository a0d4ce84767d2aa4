// The beacon plugin: a role that needs nothing, written by somebody who has read the SDK's documentation.
package main

import (
	"context"
	"strconv"

	"github.com/reeveproject/reeve/sdk/role"
)

// Set by the linker, so that one source makes plugins that get into each other's way.
var (
	pluginName    = "beacon"
	roleName      = "beacon"
	consensusUser = ""
	version       = "0.1.0"
)

type configuration struct {
	Greeting string `json:"greeting"`
	Flashes  int    `json:"flashes"`
}

func parse(document []byte) (configuration, error) {
	c := configuration{Greeting: "ahoy", Flashes: 1}
	if err := role.Decode(document, &c); err != nil {
		return c, err
	}
	problems := &role.ConfigurationError{}
	if c.Greeting == "" {
		problems.Add("/greeting", "it is empty: say something")
	}
	if c.Flashes < 1 {
		problems.Add("/flashes", "%d is not enough: at least 1", c.Flashes)
	}
	return c, problems.Err()
}

func main() {
	role.Serve(role.Plugin{
		Name:    pluginName,
		Version: version,
		Roles: []role.Role{{
			Name:          roleName,
			Summary:       "Says something",
			ConsensusUser: consensusUser,
			CheckConfiguration: func(document []byte) error {
				_, err := parse(document)
				return err
			},
			Run: func(ctx context.Context, host *role.Host) error {
				c, err := parse(host.Configuration())
				if err != nil {
					return err
				}
				host.SetValue("greeting", c.Greeting)
				host.SetValue("flashes", strconv.Itoa(c.Flashes))
				host.SetValue("instance", host.InstanceID())
				host.Ready()
				<-ctx.Done()
				return nil
			},
		}},
	})
}
