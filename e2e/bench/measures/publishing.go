package measures

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/crowd"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// publishers is how many nodes have a value that changes each second, and publishedRoles how many roles each node has.
	publishers     = 10
	publishedRoles = 20
	// publishedFor is how long they do.
	publishedFor = 30 * time.Second
	// nextBeat is longer than from one heartbeat of a node to the next.
	nextBeat = 5 * time.Second
	// sizesApart is how many times the nodes are more the second time.
	sizesApart = 4
)

// publishing measures one curator while values change that roles publish: how much of a core it takes, and what it sends. What is sent for a change to a watcher is the same in a cluster of
// a quarter of the nodes; if the directory were sent, it would be four times as much.
func (b *Bed) publishing(ctx context.Context, say func(string, ...any), size int) (results []bench.Result, err error) {
	var roles []string
	for n := range publishedRoles {
		roles = append(roles, fmt.Sprintf("hello-%d", n))
	}
	err = b.withCrowd(ctx, size, roles, func(c *comers) error {
		few, err := c.publish(ctx, say, max(size/sizesApart, publishers))
		if err != nil {
			return err
		}
		many, err := c.publish(ctx, say, size)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d nodes of %d roles, %d values a second", size, publishedRoles, publishers)
		results = append(results,
			bench.OfSamples(bench.Result{Name: name + ": curator, processor", What: "processor time of the curator, of one core, heartbeats included", Unit: "%", Notes: many.notes},
				bench.Largest, bench.AtMost(25), []float64{many.share}),
			bench.OfSamples(bench.Result{Name: name + ": sent", What: "bytes that came to all nodes in a second, encrypted; kB are 10^3 bytes", Unit: "kB/s", Notes: many.notes},
				bench.Largest, bench.Any(), []float64{many.sent / 1e3}),
			bench.OfSamples(bench.Result{Name: name + ": sent for a change to a watcher", What: "bytes that came to a node for each value that changed", Unit: "kB", Notes: many.notes},
				bench.Largest, bench.Any(), []float64{many.each / 1e3}),
			bench.OfSamples(bench.Result{
				Name: fmt.Sprintf("%s: the same against %d nodes", name, few.size), What: "the bytes for a change to a watcher, against those in the smaller cluster: 1 if the directory does not matter", Unit: "×",
				Notes: few.notes,
			}, bench.Largest, bench.AtMost(1.25), []float64{many.each / few.each}))
		back, err := c.restartCurator(ctx, say)
		results = append(results, back...)
		return err
	})
	return results, err
}

// published is what it took to tell nodes of values that change.
type published struct {
	size int
	// share is that of the curator of a core, in per cent; sent is bytes in a second, and each those of one change to one node.
	share, sent, each float64
	notes             []string
}

func (c *comers) publish(ctx context.Context, say func(string, ...any), size int) (found published, err error) {
	if err := c.grow(ctx, say, size); err != nil {
		return found, err
	}
	first, err := c.look()
	if err != nil {
		return found, err
	}
	if err := c.client.Publish(ctx, crowd.Publishing{Nodes: publishers, For: c.bed.lasting(publishedFor)}); err != nil {
		return found, err
	}
	last, err := c.look()
	if err != nil {
		return found, err
	}
	counts, err := c.counted(ctx)
	if err != nil {
		return found, err
	}
	seconds := last.at.Sub(first.at).Seconds()
	found = published{
		size: size, share: 100 * (last.curatorTime - first.curatorTime).Seconds() / seconds, sent: float64(counts.Received) / seconds,
		each: float64(counts.Received) / float64(max(counts.Published, 1)) / float64(size),
	}
	text := fmt.Sprintf("%d nodes, %.0f s: %d changes, %.1f %% of a core of the curator, %.1f %% of the store, %.0f %% of the simulated nodes; %.0f kB/s, %.2f kB for a change to a node; %s",
		size, seconds, counts.Published, found.share, 100*(last.storeTime-first.storeTime).Seconds()/seconds, 100*(last.ownTime-first.ownTime).Seconds()/seconds,
		found.sent/1e3, found.each/1e3, beats(counts))
	say("%s", text)
	found.notes = []string{text}
	return found, nil
}

// restartCurator kills the curator, and measures until all nodes are back at the next one: all come at once, and none is to be refused as one that calls too often.
func (c *comers) restartCurator(ctx context.Context, say func(string, ...any)) ([]bench.Result, error) {
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	before := instanceOf(c.node.last, "curator").GetPid()
	var next time.Duration
	took, err := c.one(call, func() (crowd.Target, func() error) {
		return crowd.Target{Back: true}, func() error {
			begun := time.Now()
			if err := unix.Kill(int(before), unix.SIGKILL); err != nil {
				return err
			}
			defer func() { next = time.Since(begun) }()
			return c.node.await(call, "another curator is Ready", func(s *nodev1.Status) bool {
				return ready(s, "curator") && instanceOf(s, "curator").GetPid() != before
			})
		}
	})
	if err != nil {
		return nil, err
	}
	// That the stream of its heartbeats has ended a node finds with the next one.
	if err := wait(ctx, nextBeat); err != nil {
		return nil, err
	}
	coming, err := c.client.Counted(ctx)
	if err == nil && coming.Refused > 0 {
		err = fmt.Errorf("%d calls of nodes that came back were refused as too many, the last of each: %v", coming.Refused, coming.Last)
	}
	if err != nil {
		return nil, err
	}
	// They are at rest again: no watch breaks any more, and heartbeats are answered.
	if err := wait(ctx, c.bed.lasting(20*time.Second)); err != nil {
		return nil, err
	}
	after, err := c.counted(ctx)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("the next curator was Ready after %.1f s; meanwhile %d calls and watches failed, %d of %d heartbeats, and none was refused as too many; in the time after it %s",
		next.Seconds(), coming.Failures, coming.BeatsFailed, coming.Beats, beats(after))
	say("all of %d nodes are back %.1f s after the death of their curator: %s", len(c.ids), took.Seconds(), text)
	return []bench.Result{bench.OfSamples(bench.Result{
		Name: fmt.Sprintf("%d nodes of %d roles: back after the curator's restart", len(c.ids), publishedRoles),
		What: "SIGKILL of the only curator until the last of all nodes has its watch again; a node is Down 10 s after its last heartbeat", Unit: "s", Notes: []string{text},
	}, bench.Largest, bench.AtMost(10), []float64{took.Seconds()})}, nil
}
