// The meters plugin: roles with metrics, most of which no role should have.
package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	role.Serve(role.Plugin{
		Name:    "meters",
		Version: "0.1.0",
		Roles: []role.Role{
			meter("meter", "Has one good metric", func(_ context.Context, to io.Writer) error {
				return write(to, "# TYPE meter_flashes_total counter\nmeter_flashes_total{lamp=\"a\"} 7\n")
			}),
			meter("garbage", "Writes no metrics at all", func(_ context.Context, to io.Writer) error {
				return write(to, "\x00\xff{{{ = = 5\nnot a metric either\n\x1b[2J")
			}),
			meter("flood", "Writes more than anybody wants", func(_ context.Context, to io.Writer) error {
				return write(to, strings.Repeat("flood_drops_total 1\n", 1<<20))
			}),
			meter("liar", "Speaks for others", func(_ context.Context, to io.Writer) error {
				return write(to, "reeve_role_restarts_total{role=\"consensus\"} 4711\nliar_series{role=\"consensus\"} 1\n# TYPE meter_flashes_total counter\nmeter_flashes_total{lamp=\"a\"} -1\n")
			}),
			meter("silent", "Never answers", func(ctx context.Context, _ io.Writer) error {
				<-ctx.Done()
				return ctx.Err()
			}),
		},
	})
}

func write(to io.Writer, text string) error {
	_, err := fmt.Fprint(to, text)
	return err
}

func meter(name, summary string, metrics func(context.Context, io.Writer) error) role.Role {
	return role.Role{
		Name: name, Summary: summary, Metrics: metrics,
		Run: func(ctx context.Context, host *role.Host) error {
			host.Ready()
			<-ctx.Done()
			return nil
		},
	}
}
