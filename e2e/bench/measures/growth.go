package measures

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/reeveproject/reeve/e2e/bench"
)

// growth compares how a cluster of three comes into being, from the exec of its first process: for Reeve until each of three nodes, which registered by a
// ticket that approves by itself, is Home and its member of the store votes; for etcd until the third member is promoted, which were added one after the other
// as learners.
func (b *Bed) growth(ctx context.Context, say func(string, ...any)) ([]bench.Result, error) {
	warm, count := b.count(1, 10)
	reeve := func(ctx context.Context) (took float64, err error) {
		c, err := b.newCluster()
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		begun := time.Now()
		if err := c.nodes[0].start(ctx); err != nil {
			return 0, err
		}
		if err := c.grow(ctx); err != nil {
			return 0, err
		}
		return milliseconds(time.Since(begun)), nil
	}
	bare := func(strict bool) bench.Side {
		return func(ctx context.Context) (took float64, err error) {
			c, err := b.newBareCluster(strict)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, c.close()) }()
			begun := time.Now()
			if err := c.grow(ctx); err != nil {
				return 0, err
			}
			return milliseconds(time.Since(begun)), nil
		}
	}
	say("%d pairs", count)
	// What is quick waits for no check of etcd's, which takes 5 s.
	pairs, err := bench.Interleave(ctx, warm, count, reeve, bare(!b.Quick))
	if err != nil {
		return nil, err
	}
	result := bench.Result{
		What: "exec of the first reeved to three nodes Home whose members of the store vote, by a ticket that approves by itself", Unit: "ms",
		Notes: []string{"etcd's timing is 100/1000 ms on both sides", "the second and the third reeved are executed at the same time, when the ticket is there"},
	}
	result.Name, result.Against = "three members, strict", "bare etcd as it is (StrictReconfigCheck): three members, two of them added as learners and promoted, one after the other"
	results := []bench.Result{bench.OfPairs(result, bench.MedianDifference, bench.AtMost(2000), pairs)}
	if b.Quick {
		return results, nil
	}
	if pairs, err = bench.Interleave(ctx, 0, count, reeve, bare(false)); err != nil {
		return results, err
	}
	result.Name, result.Against = "three members, not strict", "bare etcd without its check of the quorum, which waits for 5 s after each member"
	return append(results, bench.OfPairs(result, bench.MedianDifference, bench.Any(), pairs)), nil
}

// grow starts the first member, and then adds the others, one after the other.
func (c *bareCluster) grow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.start(ctx, 0, 1, false); err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.client(0)}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for n := 1; n < members; n++ {
		var id uint64
		if err := attempts(ctx, 0, func(ctx context.Context) error {
			added, err := client.MemberAddAsLearner(ctx, []string{c.peer(n)})
			if err == nil {
				id = added.Member.ID
			}
			return err
		}); err != nil {
			return err
		}
		if err := c.start(ctx, n, n+1, true); err != nil {
			return err
		}
		if err := attempts(ctx, 0, func(ctx context.Context) error {
			_, err := client.MemberPromote(ctx, id)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
