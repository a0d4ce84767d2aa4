package measures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// roleAdd measures from the beginning of the call that `reeve node role add` makes (a connection of its own, by mutual TLS) to the first answer of
// the role: lighthouse, a third party's, which first opens the store.
func (b *Bed) roleAdd(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(5, 120)
	n, err := b.runningNode(ctx, storage.Plain)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.addPlugin(ctx, b.Programs.lighthouse()); err != nil {
		return nil, err
	}
	say("%d times", count)
	var samples []float64
	for i := range warm + count {
		begun := time.Now()
		if err := n.addRole(ctx, "lighthouse"); err != nil {
			return nil, err
		}
		if err := n.await(ctx, "lighthouse Ready", func(s *nodev1.Status) bool { return ready(s, "lighthouse") }); err != nil {
			return nil, err
		}
		if err := call(ctx, endpoint(n.last, "lighthouse")); err != nil {
			return nil, err
		}
		took := time.Since(begun)
		if i >= warm {
			samples = append(samples, milliseconds(took))
		}
		if err := n.removeRole(ctx, "lighthouse"); err != nil {
			return nil, err
		}
	}
	result := bench.Result{
		What: "node role add to the first successful call to the role, the plugin known", Unit: "ms",
		Notes: []string{"the role is examples/lighthouse; the endpoint is learnt from the node's status; the process of the command line is not in it"},
	}
	result.Name = "first call, p50"
	half := bench.OfSamples(result, bench.P50, bench.AtMost(100), samples)
	result.Name = "first call, p99"
	return []bench.Result{half, bench.OfSamples(result, bench.P99, bench.AtMost(300), samples)}, nil
}

// call calls a role once.
func call(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	return nil
}

// death measures from SIGKILL of a role's process to the status in which the node's API says that it does not run. The role is removed and added
// again in between, so that it has its whole crash budget and no pause before its start.
func (b *Bed) death(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(3, 120)
	// A role dies while it runs: the node is not to be busy with its start any more.
	calm := b.lasting(200 * time.Millisecond)
	n, err := b.runningNode(ctx, storage.Plain)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.addPlugin(ctx, b.Programs.bench("hello")); err != nil {
		return nil, err
	}
	say("%d times", count)
	var samples []float64
	for i := range warm + count {
		if err := n.addRole(ctx, "hello"); err != nil {
			return nil, err
		}
		if err := n.await(ctx, "hello Ready", func(s *nodev1.Status) bool { return ready(s, "hello") }); err != nil {
			return nil, err
		}
		if err := wait(ctx, calm); err != nil {
			return nil, err
		}
		pid := int(instanceOf(n.last, "hello").GetPid())
		begun := time.Now()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return nil, fmt.Errorf("kill hello, process %d: %w", pid, err)
		}
		if err := n.await(ctx, "the death of hello", func(s *nodev1.Status) bool { return int(instanceOf(s, "hello").GetPid()) != pid }); err != nil {
			return nil, err
		}
		took := time.Since(begun)
		if i >= warm {
			samples = append(samples, milliseconds(took))
		}
		if err := n.removeRole(ctx, "hello"); err != nil {
			return nil, err
		}
	}
	return []bench.Result{bench.OfSamples(bench.Result{
		Name: "seen, p99", What: "death of a role to the core's word of it, as the node's API streams it", Unit: "ms",
		Notes: []string{fmt.Sprintf("SIGKILL %s after the role was Ready", calm)},
	}, bench.P99, bench.AtMost(20), samples)}, nil
}
