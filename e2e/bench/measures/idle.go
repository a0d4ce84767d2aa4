package measures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ, which is the same on all machines that matter.
const tick = 10 * time.Millisecond

// idle measures a node that has a cluster and runs the built-in roles, and to which nobody speaks.
func (b *Bed) idle(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	settle, duration, every := b.lasting(10*time.Second), b.lasting(60*time.Second), b.lasting(5*time.Second)
	n, err := b.runningNode(ctx, storage.Plain)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	processes := map[string]int{"reeved": n.core.pid()}
	for _, name := range []string{"consensus", "curator", "hostsfile"} {
		processes[name] = int(instanceOf(n.last, name).GetPid())
	}
	// Nobody watches the node's status either.
	n.cancel()
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	say("%s, looked at every %s", duration, every)
	begun := time.Now()
	before, err := cpu(processes["reeved"])
	if err != nil {
		return nil, err
	}
	var resident, shares []float64
	for time.Since(begun) < duration {
		if err := wait(ctx, every); err != nil {
			return nil, err
		}
		memory, err := rollup(processes["reeved"])
		if err != nil {
			return nil, err
		}
		resident = append(resident, memory.resident)
		share := 0.0
		for _, pid := range processes {
			memory, err := rollup(pid)
			if err != nil {
				return nil, err
			}
			share += memory.proportional
		}
		shares = append(shares, share)
	}
	elapsed := time.Since(begun)
	after, err := cpu(processes["reeved"])
	if err != nil {
		return nil, err
	}
	notes := []string{"MB are 10^6 bytes; of the looks the one with the most"}
	return []bench.Result{
		bench.OfSamples(bench.Result{Name: "reeved, resident", What: "resident memory of reeved", Unit: "MB", Notes: notes},
			bench.Largest, bench.AtMost(30), resident),
		bench.OfSamples(bench.Result{Name: "reeved, processor", What: "processor time of reeved, of one core", Unit: "%"},
			bench.Largest, bench.AtMost(0.5), []float64{100 * (after - before).Seconds() / elapsed.Seconds()}),
		bench.OfSamples(bench.Result{Name: "node, proportional", What: "proportional set size of reeved, consensus, curator and hostsfile", Unit: "MB", Notes: notes},
			bench.Largest, bench.AtMost(110), shares),
	}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cpu is the processor time that all threads of a process have used.
func cpu(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may contain anything.
	fields := strings.Fields(string(stat[slices.Index(stat, ')')+1:]))
	var user, system int64
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	return time.Duration(user+system) * tick, nil
}

// memory is what a process uses, in 10^6 bytes.
type memory struct {
	// private is what it shares with no other.
	resident, proportional, private float64
}

func rollup(pid int) (memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	var m memory
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*float64{"Rss": &m.resident, "Pss": &m.proportional, "Private_Clean": &m.private, "Private_Dirty": &m.private}[name]
		if into == nil {
			continue
		}
		var kib float64
		if _, err := fmt.Sscan(value, &kib); err != nil {
			return memory{}, fmt.Errorf("/proc/%d/smaps_rollup: %q: %w", pid, line, err)
		}
		*into += kib * 1024 / 1e6
	}
	if m.resident == 0 || m.proportional == 0 || m.private == 0 {
		return memory{}, fmt.Errorf("/proc/%d/smaps_rollup names no Rss, Pss or private memory", pid)
	}
	return m, nil
}
