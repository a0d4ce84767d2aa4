package role_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/reeveproject/reeve/sdk/role"
)

// worker is a role that goes round once a second. What Run, CheckHealth and Metrics have in common is in a value of its own; they run beside one another.
type worker struct {
	rounds atomic.Int64
	last   atomic.Int64 // the time of the last round, in nanoseconds since 1970; 0: none yet
}

func (w *worker) run(ctx context.Context, host *role.Host) error {
	host.Ready()
	for ctx.Err() == nil {
		w.rounds.Add(1)
		w.last.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// checkHealth finds a loop that hangs: the core ends the process then and starts a new one.
func (w *worker) checkHealth(context.Context) error {
	if last := w.last.Load(); last != 0 && time.Since(time.Unix(0, last)) > 10*time.Second {
		return errors.New("the loop has not come round for 10 s")
	}
	return nil
}

func (w *worker) metrics(_ context.Context, to io.Writer) error {
	_, err := fmt.Fprintf(to, "# HELP worker_rounds_total How often the worker has gone round.\n# TYPE worker_rounds_total counter\nworker_rounds_total %d\n", w.rounds.Load())
	return err
}

// A role that says whether it is able to work, and how much it has done.
func ExampleRole_health() {
	w := &worker{}
	role.Serve(role.Plugin{
		Name: "worker", Version: "0.1.0",
		Roles: []role.Role{{Name: "worker", Run: w.run, CheckHealth: w.checkHealth, Metrics: w.metrics}},
	})
}

// A role that uses a power of the host: it names the grant in its manifest, and says what it lacks if the cluster's owner did not agree.
func ExampleHost_SetHostname() {
	role.Serve(role.Plugin{
		Name: "namer", Version: "0.1.0",
		Roles: []role.Role{{
			Name:   "namer",
			Grants: []role.Grant{{Name: "set-hostname", Parameters: map[string]string{"path": "/etc/hostname"}}},
			Run: func(ctx context.Context, host *role.Host) error {
				_, _, err := host.SetHostname(ctx, host.NodeID())
				switch {
				case errors.Is(err, fs.ErrPermission):
					host.Degraded("grant set-hostname to the role to have the machine named: " + err.Error())
				case err != nil:
					return err
				default:
					host.Ready()
				}
				<-ctx.Done()
				return nil
			},
		}},
	})
}
