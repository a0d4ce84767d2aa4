// The plugin kubernetes is Kubernetes as roles of a node. Its README is the manual.
//
// Its executable is also the programs of Kubernetes that it runs, and kubectl: by the name under which it is called, or by its first argument.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/components"
	"github.com/reeveproject/reeve/plugins/kubernetes/internal/plugin"
	"github.com/reeveproject/reeve/sdk/role"
)

func main() {
	if status, ok := components.Run(os.Args); ok {
		os.Exit(status)
	}
	p := plugin.Plugin()
	for n := range p.Roles {
		p.Roles[n] = alone(p.Roles[n])
	}
	role.Serve(p)
}

// collects is how early the garbage collector of a role's process begins: a fifth of what lives, which is what the packages of Kubernetes make when any process of this executable begins, and
// seldom changes.
const collects = 20

// alone prepares the process for the one role that it runs. Its log takes what libraries write by klog: those of Kubernetes are in this executable, and gRPC writes by klog where they are. And
// what the programs of Kubernetes need when they begin, and a role does not, is given back.
func alone(of role.Role) role.Role {
	run := of.Run
	of.Run = func(ctx context.Context, host *role.Host) error {
		debug.SetGCPercent(collects)
		debug.FreeOSMemory()
		klog.SetSlogLogger(host.Slog())
		return run(ctx, host)
	}
	return of
}
