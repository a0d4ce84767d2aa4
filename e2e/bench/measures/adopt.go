package measures

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/e2e/bench"
)

// adopted is how many roles run when the core is replaced.
const adopted = 20

// adopt measures how long a core takes to adopt the roles of the one before it, from its first look at the records to the last connection.
func (b *Bed) adopt(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	_, count := b.count(0, adopted)
	_, rounds := b.count(0, 15)
	reeve, err := b.newLauncher(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reeve.at.remove()) }()
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
		role, err := reeve.start(ctx, reeve.as(fmt.Sprintf("hello-%d", n)), reeve.unserved)
		if err != nil {
			return nil, err
		}
		running = append(running, role.Instance)
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

// unserved is a host socket that nobody serves: hello does without.
func (l *launcher) unserved(remit *plugin.Remit) (string, func(), error) {
	return filepath.Join(l.run, "host", remit.Role+".sock"), func() {}, nil
}
