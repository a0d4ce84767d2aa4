package measures

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/load"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// attacked compares how long the writes of a role take while another one uses the store, or what it may publish, as much as it gets, with how long they take without.
func (b *Bed) attacked(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(1, 20)
	slice := b.lasting(2 * time.Second)
	n, err := b.runningNode(ctx, storage.Plain)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	victim, err := n.addStoreClient(ctx)
	if err != nil {
		return nil, err
	}
	const glutton = "benchglutton"
	if err := errors.Join(n.addPlugin(ctx, b.Programs.bench("glutton")), n.addRole(ctx, glutton)); err != nil {
		return nil, err
	}
	if err := n.await(ctx, glutton+" Ready", func(s *nodev1.Status) bool { return ready(s, glutton) }); err != nil {
		return nil, err
	}
	attacker := endpoint(n.last, glutton)
	caller := &http.Client{Timeout: patience}
	defer caller.CloseIdleConnections()
	writes := func(ctx context.Context) (float64, error) {
		answer, err := load.Ask(ctx, caller, victim, load.Request{Operation: load.Put, InFlight: 1, Duration: slice})
		return milliseconds(answer.P99), err
	}
	for _, attack := range []string{"reads", "history", "leases", "published"} {
		say("%s: %d pairs of %s each", attack, count, slice)
		pairs, err := bench.Interleave(ctx, warm, count, func(ctx context.Context) (took float64, err error) {
			err = during(ctx, caller, attacker+attack, func() error {
				took, err = writes(ctx)
				return err
			})
			return took, err
		}, writes)
		if err != nil {
			return results, fmt.Errorf("%s: %w", attack, err)
		}
		results = append(results, bench.OfPairs(bench.Result{
			Name: "put of another role, p99, " + attack, What: "how long 99 % of the puts of a role took at most while another role attacked the store or the directory", Against: "the same without the attack", Unit: "ms",
			Notes: []string{fmt.Sprintf("slices of %s with one put in flight, one member, on one machine", slice)},
		}, bench.MedianRatio, bench.AtMost(2), pairs))
	}
	return results, nil
}

// during does something while an attack goes on.
func during(ctx context.Context, caller *http.Client, url string, something func() error) error {
	attacking, stop := context.WithCancel(ctx)
	defer stop()
	request, err := http.NewRequestWithContext(attacking, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	response, err := caller.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return something()
}
