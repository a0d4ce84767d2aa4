package measures

import (
	"context"
	"fmt"
	"time"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/crowd"
)

const (
	// publishers is how many nodes have a value that changes each second, and publishedRoles how many roles each node has.
	publishers     = 10
	publishedRoles = 20
	// publishedFor is how long they do.
	publishedFor = 30 * time.Second
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
		return nil
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
