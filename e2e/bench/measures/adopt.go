package measures

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/e2e/bench"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// adopted is how many roles run when the core is replaced.
const adopted = 20

// adopt measures how long a core takes to adopt the roles of the one before it, from its first look at the records to the last connection.
func (b *Bed) adopt(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	_, count := b.count(0, adopted)
	_, rounds := b.count(0, 15)
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	reeve, err := b.newLauncher(ctx, at)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	var running []*plugin.Instance
	// Whatever happens, the instances of the last core end.
	defer func() {
		for _, instance := range running {
			err = errors.Join(err, instance.Stop(context.WithoutCancel(ctx), plugin.DefaultGrace))
		}
	}()
	for n := range count {
		instance, err := reeve.launch(ctx, fmt.Sprintf("hello-%d", n))
		if err != nil {
			return nil, err
		}
		running = append(running, instance)
	}
	say("%d roles, adopted %d times", count, rounds)
	var samples []float64
	for range rounds {
		for _, instance := range running {
			instance.Leave()
		}
		running = nil
		next, err := reeve.successor()
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		running, err = next.Adopt(ctx)
		took := milliseconds(time.Since(begun))
		if err != nil {
			return nil, err
		}
		if len(running) != count {
			return nil, fmt.Errorf("%d of %d roles were adopted", len(running), count)
		}
		samples = append(samples, took)
	}
	return []bench.Result{bench.OfSamples(bench.Result{
		Name: "roles", What: fmt.Sprintf("a core adopts the %d roles of the one before it", count), Unit: "ms",
		Notes: []string{"core/plugin's Adopt in the process of the harness: records, process, user, socket, connection and first call of each"},
	}, bench.Largest, bench.AtMost(150), samples)}, nil
}

// launch launches hello under another role's name. Nobody serves its host socket: it does without.
func (l *launcher) launch(ctx context.Context, name string) (*plugin.Instance, error) {
	spec := l.spec
	record := proto.CloneOf(spec.Plugin)
	record.Grants[0].Role, spec.Role = name, name
	spec.Plugin = record
	remit, err := l.launcher.Prepare(ctx, spec)
	if err != nil {
		return nil, err
	}
	instance, err := l.launcher.Launch(ctx, remit, spec, filepath.Join(l.run, "host", name+".sock"))
	if err != nil {
		return nil, err
	}
	_, err = instance.Status().Wait(ctx, func(status *rolev1.WatchResponse) bool { return status.GetState() == rolev1.RoleState_ROLE_STATE_READY })
	return instance, err
}
