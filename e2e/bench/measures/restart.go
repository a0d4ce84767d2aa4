package measures

import (
	"context"
	"errors"
	"time"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// restart compares the start of a node that has a cluster with that of an etcd that has its member: both wait for an election, the length of which is
// random.
func (b *Bed) restart(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(1, 60)
	n, err := b.runningNode(ctx, storage.Plain)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.stop(); err != nil {
		return nil, err
	}
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	bare := func(ctx context.Context) (float64, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		begun := time.Now()
		store, err := b.startBareStore(ctx, at)
		if err != nil {
			return 0, err
		}
		took := time.Since(begun)
		return milliseconds(took), store.stop()
	}
	reeve := n.restarts("Home, with consensus and curator Ready", func(s *nodev1.Status) bool { return home(s) && ready(s, "consensus", "curator") })
	// The first start of the bare part makes its member.
	if _, err := bare(ctx); err != nil {
		return nil, err
	}
	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, reeve, bare)
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "start", What: "exec of reeved to Home, consensus and curator Ready", Against: "bare embedded etcd, exec to first write", Unit: "ms",
		Notes: []string{"restart of a formed cluster; etcd's timing is 100/1000 ms on both sides"},
	}, bench.MedianDifference, bench.AtMost(250), pairs)}, nil
}

// restarts measures from exec of reeved until the node, which does not run, is as it should be, and stops it again.
func (n *node) restarts(what string, ok func(*nodev1.Status) bool) bench.Side {
	return func(ctx context.Context) (float64, error) {
		begun := time.Now()
		if err := n.start(ctx); err != nil {
			return 0, err
		}
		err := n.await(ctx, what, ok)
		took := time.Since(begun)
		return milliseconds(took), errors.Join(err, n.stop())
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
