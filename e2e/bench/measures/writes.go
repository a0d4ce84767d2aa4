package measures

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/load"
)

// writes compares the store of a node on an encrypted volume with that of one on a plain volume, both on the same disk, by the confined client of a role on
// each. One is at work at a time.
func (b *Bed) writes(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(3, 40)
	slice := b.lasting(time.Second)
	encrypted, plain, end, err := b.bothKinds(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	theirs, err := plain.addStoreClient(ctx)
	if err != nil {
		return nil, err
	}
	ours, err := encrypted.addStoreClient(ctx)
	if err != nil {
		return nil, err
	}
	caller := &http.Client{Timeout: patience}
	defer caller.CloseIdleConnections()
	side := func(url string, request load.Request, into *[]load.Answer) bench.Side {
		return func(ctx context.Context) (float64, error) {
			answer, err := load.Ask(ctx, caller, url, request)
			if err != nil {
				return 0, err
			}
			*into = append(*into, answer)
			return answer.Rate(), nil
		}
	}
	for _, inFlight := range []int{1, 32} {
		say("%d in flight: %d pairs of %s each", inFlight, count, slice)
		request := load.Request{Operation: load.Put, InFlight: inFlight, Duration: slice}
		var a, b []load.Answer
		rates, err := bench.Interleave(ctx, warm, count, side(ours, request, &a), side(theirs, request, &b))
		if err != nil {
			return results, fmt.Errorf("%d in flight: %w", inFlight, err)
		}
		var p50, p99 []bench.Pair
		for i := range rates {
			ours, theirs := a[warm+i], b[warm+i]
			p50 = append(p50, bench.Pair{A: milliseconds(ours.P50), B: milliseconds(theirs.P50)})
			p99 = append(p99, bench.Pair{A: milliseconds(ours.P99), B: milliseconds(theirs.P99)})
		}
		for _, figure := range []struct {
			name, what, unit string
			pairs            []bench.Pair
		}{
			{"rate", "puts in a second", "/s", rates}, {"p50", "how long half of the puts of a slice took at most", "ms", p50},
			{"p99", "how long 99 % of the puts of a slice took at most", "ms", p99},
		} {
			results = append(results, bench.OfPairs(bench.Result{
				Name: fmt.Sprintf("put, %d in flight, %s", inFlight, figure.name), What: figure.what + ", on fscrypt in an image", Against: "the same on a plain volume", Unit: figure.unit,
				Notes: []string{fmt.Sprintf("slices of %s, %d keys, values of %d bytes, fsync on", slice, load.Keys, load.ValueSize)},
			}, bench.MedianRatio, bench.Any(), figure.pairs))
		}
	}
	return results, nil
}
