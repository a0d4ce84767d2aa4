package measures

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/load"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// store compares the client of a role with etcd's own, each in a process of its own and each at an etcd of its own on the same disk. One is at work at
// a time, in short slices.
func (b *Bed) store(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(3, 120)
	// Short, so that what disturbs the machine for longer meets both sides of a pair.
	slice := b.lasting(250 * time.Millisecond)
	n, err := b.runningNode(ctx, storage.Plain)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	confined, err := n.addStoreClient(ctx)
	if err != nil {
		return nil, err
	}
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	if err := sameDevice(at.work, filepath.Join(n.at.work, "data")); err != nil {
		return nil, err
	}
	started, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	bare, err := b.startBareStore(started, at)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()
	lines := make(chan string, 1)
	client, err := startProcess(filepath.Join(at.work, "client.log"), lines, b.Programs.bench("bareload"), "-endpoint", bare.address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.stop()) }()
	native, err := client.line(started, lines)
	if err != nil {
		return nil, err
	}

	caller := &http.Client{Timeout: patience}
	defer caller.CloseIdleConnections()
	side := func(url string, request load.Request) bench.Side {
		return func(ctx context.Context) (float64, error) {
			answer, err := load.Ask(ctx, caller, url, request)
			if err != nil {
				return 0, err
			}
			return answer.Rate(), err
		}
	}
	for _, operation := range []load.Operation{load.Put, load.Get} {
		for _, inFlight := range []int{1, 32} {
			name := fmt.Sprintf("%s, %d in flight", operation, inFlight)
			say("%s: %d pairs of %s each", name, count, slice)
			request := load.Request{Operation: operation, InFlight: inFlight, Duration: slice}
			pairs, err := bench.Interleave(ctx, warm, count, side(confined, request), side(native, request))
			if err != nil {
				return results, fmt.Errorf("%s: %w", name, err)
			}
			results = append(results, bench.OfPairs(bench.Result{
				Name: name, What: "operations of the confined, namespaced client in a second",
				Against: "etcd's own client, native gRPC on plaintext TCP, a bare embedded etcd without users", Unit: "/s",
				Notes: []string{fmt.Sprintf("slices of %s, %d keys, values of %d bytes, fsync on", slice, load.Keys, load.ValueSize)},
			}, bench.MedianRatio, bench.LowAtLeast(0.85), pairs))
		}
	}
	return results, nil
}

// addStoreClient has the node run the role that puts loads on the store, and returns where it is told to.
func (n *node) addStoreClient(ctx context.Context) (url string, err error) {
	const name = "benchstore"
	if err := errors.Join(n.addPlugin(ctx, n.bed.Programs.bench("store")), n.addRole(ctx, name)); err != nil {
		return "", err
	}
	err = n.await(ctx, name+" Ready", func(s *nodev1.Status) bool { return ready(s, name) })
	return endpoint(n.last, name), err
}

// endpoint is the address that a role serves HTTP on.
func endpoint(s *nodev1.Status, name string) string {
	for _, endpoint := range instanceOf(s, name).GetEndpoints() {
		if endpoint.GetName() == "http" {
			return endpoint.GetAddress()
		}
	}
	return ""
}
