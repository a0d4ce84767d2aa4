// Package load puts a load on a store: the same on the confined client of a role and on a bare one, each in a process of its own. A process serves
// it over HTTP to whoever measures, and runs one load at a time.
package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/e2e/bench"
)

// Operation is what is done to the store.
type Operation string

// The operations.
const (
	// Put writes a value to a key that is there, and waits until it is on disk.
	Put Operation = "put"
	// Get reads a key, linearizably.
	Get Operation = "get"
	// Grow writes large values to keys that the other operations leave alone.
	Grow Operation = "grow"
)

// Request is a load.
type Request struct {
	Operation Operation `json:"operation"`
	// InFlight is how many operations are under way at any time.
	InFlight int `json:"in_flight"`
	// Duration is how long it lasts; Grow ends by itself.
	Duration time.Duration `json:"duration"`
	// Rate is how many operations begin in a second; 0: each begins when the one before it has ended. One that begins late, since all that may be in flight are, counts from when it was to begin.
	Rate int `json:"rate,omitempty"`
	// Bytes is how many Grow writes.
	Bytes int64 `json:"bytes,omitempty"`
}

// Answer is what came of it.
type Answer struct {
	Operations int64         `json:"operations"`
	Elapsed    time.Duration `json:"elapsed"`
	// P50 and P99 are how long half and 99 % of the operations took at most.
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
}

// Rate is how many operations there were in a second.
func (a Answer) Rate() float64 { return float64(a.Operations) / a.Elapsed.Seconds() }

const (
	// Keys is among how many keys the operations are spread, ValueSize how many bytes each holds.
	Keys      = 512
	ValueSize = 256
	// GrowSize is how many bytes each value has that Grow writes.
	GrowSize = 16 << 10
	// most bounds a request.
	most       = 1 << 12
	maxWorkers = 1024
	maxRate    = 1_000_000
)

// Fill writes all keys, so that every operation meets a key that is there.
func Fill(ctx context.Context, store clientv3.KV) error {
	for n := range Keys {
		if _, err := store.Put(ctx, key(n), value(n)); err != nil {
			return err
		}
	}
	return nil
}

func key(n int) string { return fmt.Sprintf("key-%06d", n) }

func value(n int) string { return string(bytes.Repeat([]byte{'a' + byte(n%26)}, ValueSize)) }

// growKey is a key that Grow writes.
func growKey(n int) string { return fmt.Sprintf("grow-%08d", n) }

// growValue is text that no other key has, and that can be compressed to half of its size.
func growValue(n int) string {
	random := rand.New(rand.NewPCG(uint64(n), 0)) // not secret
	content := make([]byte, 0, GrowSize/2)
	for len(content) < cap(content) {
		content = binary.LittleEndian.AppendUint64(content, random.Uint64())
	}
	return hex.EncodeToString(content)
}

// Do puts the load on a store. It fails with the first operation that does.
func Do(ctx context.Context, store clientv3.KV, request Request) (Answer, error) {
	var operation func(n int) error
	switch request.Operation {
	case Put:
		operation = func(n int) error { _, err := store.Put(ctx, key(n), value(n)); return err }
	case Get:
		operation = func(n int) error {
			found, err := store.Get(ctx, key(n))
			if err == nil && len(found.Kvs) != 1 {
				err = errors.New("a key is not there")
			}
			return err
		}
	case Grow:
		operation = func(n int) error { _, err := store.Put(ctx, growKey(n), growValue(n)); return err }
	default:
		return Answer{}, fmt.Errorf("operation %q", request.Operation)
	}
	if request.InFlight < 1 || request.InFlight > maxWorkers || request.Rate < 0 || request.Rate > maxRate {
		return Answer{}, fmt.Errorf("%d in flight, %d in a second", request.InFlight, request.Rate)
	}
	if (request.Operation == Grow) != (request.Bytes > 0) || (request.Operation == Grow) == (request.Duration > 0) || request.Operation == Grow && request.Rate > 0 {
		return Answer{}, fmt.Errorf("operation %q for %s with %d bytes", request.Operation, request.Duration, request.Bytes)
	}
	var workers sync.WaitGroup
	took := make([][]float64, request.InFlight)
	failures := make(chan error, request.InFlight)
	begun := time.Now()
	next := request.schedule(begun)
	for worker := range request.InFlight {
		workers.Go(func() {
			for {
				n, from, more := next(ctx, len(took[worker]))
				if !more {
					return
				}
				if err := operation(n); err != nil {
					failures <- err
					return
				}
				took[worker] = append(took[worker], float64(time.Since(from)))
			}
		})
	}
	workers.Wait()
	// Until the last operation has ended, so that none is counted for nothing.
	elapsed := time.Since(begun)
	select {
	case err := <-failures:
		return Answer{}, err
	default:
	}
	all := slices.Concat(took...)
	return Answer{
		Operations: int64(len(all)), Elapsed: elapsed, P50: time.Duration(bench.Quantile(all, 0.5)), P99: time.Duration(bench.Quantile(all, 0.99)),
	}, nil
}

// schedule says what a worker that has done some operations does next, and from when on that counts. It waits until it is to begin.
func (r Request) schedule(begun time.Time) func(ctx context.Context, done int) (n int, from time.Time, more bool) {
	var given atomic.Int64
	switch {
	case r.Operation == Grow:
		return func(context.Context, int) (int, time.Time, bool) {
			n := given.Add(1) - 1
			return int(n), time.Now(), n*GrowSize < r.Bytes
		}
	case r.Rate > 0:
		return func(ctx context.Context, _ int) (int, time.Time, bool) {
			after := time.Duration(given.Add(1)-1) * time.Second / time.Duration(r.Rate)
			due := begun.Add(after)
			if after >= r.Duration {
				return 0, due, false
			}
			if early := time.Until(due); early > 0 {
				timer := time.NewTimer(early)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
					// The operation says so.
				}
				// How late a timer is says nothing about the store.
				due = time.Now()
			}
			return rand.IntN(Keys), due, true
		}
	default:
		return func(_ context.Context, done int) (int, time.Time, bool) {
			now := time.Now()
			// Each does one at least: on a busy machine a short time may be over before the first has begun.
			return rand.IntN(Keys), now, done == 0 || now.Sub(begun) < r.Duration
		}
	}
}

// Handler serves Do.
func Handler(store clientv3.KV) http.Handler {
	var one sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := json.NewDecoder(io.LimitReader(r.Body, most)).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		one.Lock()
		defer one.Unlock()
		answer, err := Do(r.Context(), store, request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(answer) // fails only if the client has gone
	})
}

// Serve serves Do until ctx ends.
func Serve(ctx context.Context, listener net.Listener, store clientv3.KV) error {
	server := &http.Server{Handler: Handler(store), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err := server.Close()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Ask has a process do a load.
func Ask(ctx context.Context, client *http.Client, url string, request Request) (Answer, error) {
	document, err := json.Marshal(request)
	if err != nil {
		return Answer{}, err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(document))
	if err != nil {
		return Answer{}, err
	}
	response, err := client.Do(call)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return Answer{}, err
	}
	if response.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("%s: %s", url, bytes.TrimSpace(body))
	}
	var answer Answer
	return answer, json.Unmarshal(body, &answer)
}
