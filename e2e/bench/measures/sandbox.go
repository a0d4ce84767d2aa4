package measures

import (
	"context"
	"errors"
	"fmt"

	"github.com/reeveproject/reeve/e2e/bench"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// sandbox compares the launch of a confined role with that of the same executable by the same Launcher without a sandbox: what the difference costs is the
// user, the view of the file systems, Landlock, the filter of system calls, the control group and the bounds.
func (b *Bed) sandbox(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(5, 120)
	l, err := b.newLauncher(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.at.remove()) }()
	// Another role of the same plugin, that was granted to have no sandbox.
	free := l.as("hello-0", &rolev1.Grant{Name: remit.Privileged})
	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, l.once, func(ctx context.Context) (float64, error) { return l.onceAs(ctx, free) })
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "start", What: "launch to Ready of a confined role", Against: "the same executable by the same Launcher, privileged", Unit: "ms",
		Notes: []string{"both executables are verified; what this user or machine cannot enforce is left out of the confined one too"},
	}, bench.MedianRatio, bench.AtMost(1.3), pairs)}, nil
}

// rolesAtOnce is how many roles run at once where their memory is looked at.
const rolesAtOnce = 50

// memory compares what each of many roles that do nothing has of memory that it shares with nobody, with the same of bare plugins.
func (b *Bed) memory(ctx context.Context, say func(string, ...any)) (results []bench.Result, problem error) {
	_, count := b.count(0, rolesAtOnce)
	reeve, err := b.newLauncher(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { problem = errors.Join(problem, reeve.at.remove()) }()
	say("%d roles, and as many bare plugins", count)
	ours, theirs := make([]float64, count), make([]float64, count)
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	for n := range count {
		role, err := reeve.start(ctx, reeve.as(fmt.Sprintf("hello-%d", n)), reeve.hosts.Open)
		if err != nil {
			return nil, err
		}
		defer func() { problem = errors.Join(problem, role.stop(ctx)) }()
		pid, end, err := b.bareHello(ctx, reeve.at)
		defer end()
		if err != nil {
			return nil, err
		}
		for of, into := range map[int]*float64{role.Process().PID: &ours[n], pid: &theirs[n]} {
			memory, err := rollup(of)
			if err != nil {
				return nil, err
			}
			*into = memory.private
		}
	}
	var pairs []bench.Pair
	for n := range count {
		pairs = append(pairs, bench.Pair{A: ours[n], B: theirs[n]})
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "private", What: fmt.Sprintf("private memory of each of %d roles that do nothing, above that of a bare plugin", count),
		Against: "go-plugin with a service of one method", Unit: "MB", Notes: []string{"Private_Clean and Private_Dirty when it has become Ready, with all the others running; MB are 10^6 bytes"},
	}, bench.MedianDifference, bench.AtMost(4), pairs)}, nil
}
