package measures

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/bench"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// putBound is how long one put of etcd's client may take before it is made again: one that was sent on to the leader that died is never answered, and the
// client would wait for 7 s.
const putBound = 100 * time.Millisecond

// failover compares how long nothing is acknowledged after the leader of the store was killed, with everything on its node: for Reeve until a management call
// is that changes a record, for etcd until a put is. The call of Reeve may take as long as it wants: that what the dead leader had is lost is the curator's to
// find out.
func (b *Bed) failover(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(2, 40)
	c, err := b.runningCluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	management, done, err := c.management()
	if err != nil {
		return nil, err
	}
	defer done()
	bare, err := b.newBareCluster(false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	if err := bare.startAll(ctx); err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: bare.endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()

	say("%d pairs", count)
	pairs, err := bench.Interleave(ctx, warm, count, func(ctx context.Context) (float64, error) { return c.failOver(ctx, management) },
		func(ctx context.Context) (float64, error) { return bare.failOver(ctx, client) })
	if err != nil {
		return nil, err
	}
	return []bench.Result{bench.OfPairs(bench.Result{
		Name: "next acknowledged call", What: "SIGKILL of all processes of the leader's node to the first management call (SetLabels, all curators in turn) that is acknowledged",
		Against: "bare etcd of three members, SIGKILL of the leader to the first put that is acknowledged, made again every 100 ms", Unit: "ms",
		Notes: []string{fmt.Sprintf("raft's timing is %d/%d ms on both sides, and an election begins after one to two of the latter, at random", b.heartbeat(), 10*b.heartbeat())},
	}, bench.MedianRatio, bench.AtMost(1.3), pairs)}, nil
}

// failOver kills the node whose member leads, returns how long nothing was acknowledged, and has everything run again.
func (c *cluster) failOver(ctx context.Context, management clusterv1.ManagementServiceClient) (float64, error) {
	number := 0
	set := func(ctx context.Context) error {
		number++
		_, err := management.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: c.nodes[0].last.GetNodeId(), Labels: map[string]string{"number": fmt.Sprint(number)}})
		return err
	}
	// Every curator is connected with.
	for range 2 * members {
		if err := attempts(ctx, 0, set); err != nil {
			return 0, err
		}
	}
	leader, err := c.leader()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := leader.kill(); err != nil {
		return 0, err
	}
	err = attempts(ctx, 0, set)
	took := time.Since(begun)
	if err != nil {
		return 0, fmt.Errorf("a call after the node at %s was killed: %w", leader.address, err)
	}
	if err := leader.revive(ctx); err != nil {
		return 0, err
	}
	return milliseconds(took), c.fresh(ctx)
}

// fresh waits until the cluster works, by what its nodes say now: what they said before may be from before a node was killed.
func (c *cluster) fresh(ctx context.Context) error {
	for _, n := range c.nodes {
		n.last = nil
		if err := n.rewatch(); err != nil {
			return err
		}
	}
	if err := c.await(ctx, "works again", settled); err != nil {
		return err
	}
	_, err := c.leader()
	return err
}

// failOver is that of cluster.
func (c *bareCluster) failOver(ctx context.Context, client *clientv3.Client) (float64, error) {
	put := func(ctx context.Context) error {
		_, err := client.Put(ctx, "number", "value")
		return err
	}
	for range 2 * members {
		if err := attempts(ctx, putBound, put); err != nil {
			return 0, err
		}
	}
	leader, err := c.leader(ctx, client)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := unix.Kill(c.members[leader].pid(), unix.SIGKILL); err != nil {
		return 0, err
	}
	err = attempts(ctx, putBound, put)
	took := time.Since(begun)
	if err != nil {
		return 0, fmt.Errorf("a put after %s was killed: %w", c.name(leader), err)
	}
	<-c.members[leader].ended
	return milliseconds(took), c.start(ctx, leader, members, false)
}

// leader returns the member that leads.
func (c *bareCluster) leader(ctx context.Context, client *clientv3.Client) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for n := range c.members {
		answer, err := client.Status(ctx, c.client(n))
		if err != nil {
			return 0, err
		}
		if answer.Leader != 0 && answer.Leader == answer.Header.GetMemberId() {
			return n, nil
		}
	}
	return 0, errors.New("no member of the bare cluster leads")
}
