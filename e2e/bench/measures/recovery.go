package measures

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/reeveproject/reeve/e2e/bench"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// few is how often something is measured that takes long and is judged by the slowest time.
func (b *Bed) few(count int) int {
	if b.Quick {
		return 1
	}
	return count
}

// restore measures how long it takes to make the first node of a cluster out of a snapshot.
func (b *Bed) restore(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	count := b.few(5)
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	file := filepath.Join(at.work, "snapshot")
	cluster, owner, err := b.lost(ctx, file, say)
	if err != nil {
		return nil, err
	}
	say("restored %d times", count)
	var took []float64
	for range count {
		one, err := b.restoreOnce(ctx, file, cluster, owner)
		if err != nil {
			return nil, err
		}
		took = append(took, one.Seconds())
	}
	return []bench.Result{bench.OfSamples(bench.Result{
		Name: "restore", What: "exec of `reeved restore` on an empty place to its end, which is when the node was Home and has stopped, the slowest", Unit: "s",
		Notes: []string{b.largeNote(), "the snapshot is not sealed, and is in the page cache"},
	}, bench.Largest, bench.AtMost(60), took)}, nil
}

// lost makes a cluster whose store is large, takes a snapshot of it, and removes the cluster.
func (b *Bed) lost(ctx context.Context, file string, say func(string, ...any)) (cluster string, owner ed25519.PrivateKey, err error) {
	caller := &http.Client{Timeout: snapshotPatience}
	defer caller.CloseIdleConnections()
	n, _, err := b.largeNode(ctx, caller, say)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	management, done, err := n.management()
	if err != nil {
		return "", nil, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	stream, err := management.StreamUnencryptedSnapshot(ctx, &clusterv1.StreamUnencryptedSnapshotRequest{})
	if err != nil {
		return "", nil, err
	}
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", nil, err
	}
	return n.last.GetCluster().GetClusterId(), n.owner, errors.Join(readAll(stream, to), to.Sync(), to.Close())
}

func (b *Bed) restoreOnce(ctx context.Context, file, cluster string, owner ed25519.PrivateKey) (took time.Duration, err error) {
	n, err := (&node{bed: b, owner: owner, address: "127.0.0.1"}).make()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	begun := time.Now()
	p, err := startProcess(filepath.Join(n.at.work, "log"), nil, b.Programs.reeved(), "restore", "--parameters", n.parametersFile(), "--snapshot", file, "--cluster-id", cluster)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	select {
	case <-p.ended:
		took = time.Since(begun)
	case <-ctx.Done():
		return 0, errors.Join(fmt.Errorf("reeved restore has not ended: %w\n%s", ctx.Err(), p.lastLines()), p.stop())
	}
	if p.err != nil {
		// It may have left roles.
		return 0, errors.Join(fmt.Errorf("reeved restore: %w\n%s", p.err, p.lastLines()), exec.Command(b.Programs.reeved(), "reap", "--parameters", n.parametersFile()).Run())
	}
	return took, nil
}

// recoverQuorum measures how long it takes until the survivor of a cluster takes writes again.
func (b *Bed) recoverQuorum(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	count := b.few(members)
	c, err := b.runningCluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	say("%d times", count)
	var took []float64
	refused := 0
	for number := range count {
		// Each is the survivor in turn, one that leads among them.
		survivor := c.nodes[number%members]
		one, tries, err := c.loseMajority(ctx, survivor)
		if err != nil {
			return nil, err
		}
		took, refused = append(took, one.Seconds()), refused+tries-1
		if number == count-1 {
			err = c.bury(survivor)
		} else {
			err = c.bringBack(ctx, survivor)
		}
		if err != nil {
			return nil, err
		}
	}
	return []bench.Result{bench.OfSamples(bench.Result{
		Name: "first acknowledged write", What: "exec of `reeve store recover-quorum` for the survivor, right after all processes of the two other nodes were killed, to its end, which is after the first acknowledged write, the slowest", Unit: "s",
		Notes: []string{
			fmt.Sprintf("raft's timing is %d/%d ms; the command was run %d times, %d of which were refused, since the survivor did not know yet that it has no quorum: that counts", b.heartbeat(), 10*b.heartbeat(), count+refused, refused),
		},
	}, bench.Largest, bench.AtMost(10), took)}, nil
}

// loseMajority kills all nodes but one, and returns how long it takes to make its member the only one of the store, and how often the command was run for that.
func (c *cluster) loseMajority(ctx context.Context, survivor *node) (took time.Duration, tries int, err error) {
	id := survivor.last.GetCluster().GetClusterId()
	for _, n := range c.nodes {
		if n != survivor {
			if err := n.kill(); err != nil {
				return 0, 0, err
			}
		}
	}
	attempt, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for begun := time.Now(); ; {
		tries++
		command := exec.CommandContext(attempt, c.bed.Programs.reeve(), "store", "recover-quorum", "--socket", survivor.layout().NodeSocket(), "--cluster-id", id)
		// It knows of no other cluster.
		command.Env = append(os.Environ(), "XDG_CONFIG_HOME="+survivor.at.work)
		said, err := command.CombinedOutput()
		if err == nil {
			took = time.Since(begun)
			break
		}
		if attempt.Err() != nil || !strings.Contains(string(said), "has a quorum") {
			return 0, tries, fmt.Errorf("reeve store recover-quorum at %s: %w\n%s", survivor.address, err, said)
		}
	}
	return took, tries, nil
}

// bringBack has the others run again, one after the other: they have a majority of the former store among themselves, and may go on with that.
func (c *cluster) bringBack(ctx context.Context, survivor *node) error {
	for _, n := range c.nodes {
		if n == survivor {
			continue
		}
		if err := n.revive(ctx); err != nil {
			return err
		}
		if err := n.await(ctx, "its member is one of the survivor's store", func(s *nodev1.Status) bool { return home(s) && s.GetStore().GetQuorum() }); err != nil {
			return err
		}
	}
	return c.fresh(ctx)
}

// bury gives up the others, which were killed and are not started again.
func (c *cluster) bury(survivor *node) error {
	for _, n := range c.nodes {
		if n == survivor {
			continue
		}
		<-n.core.ended
		n.cancel()
		if err := n.local.Close(); err != nil {
			return err
		}
		n.core = nil
	}
	return nil
}
