// The picky plugin: a role that says by a schema what a configuration has to be, and refuses for itself what a schema cannot say.
package main

import (
	"context"
	"strconv"

	"github.com/reeveproject/reeve/sdk/role"
)

const schema = `{
	"type": "object",
	"properties": {
		"lamps": {"type": "integer", "minimum": 1, "maximum": 10},
		"token": {"type": "string", "pattern": "^[a-z0-9-]+$", "maxLength": 64},
		"colours": {"type": "array", "items": {"enum": ["red", "green", "white"]}}
	},
	"required": ["lamps"],
	"additionalProperties": false
}`

type configuration struct {
	Lamps   int      `json:"lamps"`
	Token   string   `json:"token"`
	Colours []string `json:"colours"`
}

func parse(document []byte) (configuration, error) {
	c := configuration{Lamps: 2}
	if err := role.Decode(document, &c); err != nil {
		return c, err
	}
	problems := &role.ConfigurationError{}
	if c.Lamps%2 != 0 {
		problems.Add("/lamps", "the lamps come in pairs")
	}
	if len(c.Colours) > c.Lamps {
		problems.Add("/colours", "there are more colours than lamps")
	}
	return c, problems.Err()
}

func main() {
	role.Serve(role.Plugin{
		Name:    "picky",
		Version: "0.1.0",
		Roles: []role.Role{{
			Name:                "picky",
			Summary:             "Wants its configuration just so",
			ConfigurationSchema: schema,
			CheckConfiguration: func(document []byte) error {
				_, err := parse(document)
				return err
			},
			Run: func(ctx context.Context, host *role.Host) error {
				c, err := parse(host.Configuration())
				if err != nil {
					return err
				}
				host.SetValue("lamps", strconv.Itoa(c.Lamps))
				host.Ready()
				<-ctx.Done()
				return nil
			},
		}},
	})
}
