package measures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"filippo.io/age"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/load"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// putRate is how many puts begin in a second while snapshots are taken.
	putRate = 1000
	// snapshotPatience is how long it may take to fill a large store, to take a snapshot of it, or to restore one.
	snapshotPatience = 10 * time.Minute
)

// stored is how many bytes a large store has.
func (b *Bed) stored() int64 {
	if b.Quick {
		return 4 << 20
	}
	return 512 << 20
}

// largeNote says what a large store is.
func (b *Bed) largeNote() string {
	return fmt.Sprintf("the store has %d MiB of values of %d KiB each, which compress to half of their size; its member is the only one", b.stored()>>20, load.GrowSize>>10)
}

// largeNode is a running node whose store is large, and where the role on it is told to put loads on the store.
func (b *Bed) largeNode(ctx context.Context, caller *http.Client, say func(string, ...any)) (n *node, url string, err error) {
	if n, err = b.runningNode(ctx, storage.Plain); err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if url, err = n.addStoreClient(ctx); err != nil {
		return nil, "", err
	}
	say("%d MiB are written, at 4 MiB in a second, which is as fast as a role may", b.stored()>>20)
	if _, err := load.Ask(ctx, caller, url, load.Request{Operation: load.Grow, InFlight: 16, Bytes: b.stored()}); err != nil {
		return nil, "", err
	}
	// What it had in memory to write so much goes with its processes.
	if err := n.stop(); err != nil {
		return nil, "", err
	}
	if err := n.start(ctx); err != nil {
		return nil, "", err
	}
	if err := n.up(ctx); err != nil {
		return nil, "", err
	}
	err = n.await(ctx, "benchstore Ready", func(s *nodev1.Status) bool { return ready(s, "benchstore") })
	return n, endpoint(n.last, "benchstore"), err
}

// snapshot compares how long the puts of a role take while snapshots are taken with how long they take without, and what memory the node uses.
func (b *Bed) snapshot(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	warm, count := b.count(1, 8)
	caller := &http.Client{Timeout: snapshotPatience}
	defer caller.CloseIdleConnections()
	n, url, err := b.largeNode(ctx, caller, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	management, done, err := n.management()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := setRecipient(ctx, management); err != nil {
		return nil, err
	}
	s := &snapshots{management: management, every: b.lasting(250 * time.Millisecond), pids: []int{n.core.pid()}}
	for _, name := range []string{"consensus", "curator", "hostsfile"} {
		s.pids = append(s.pids, int(instanceOf(n.last, name).GetPid()))
	}
	puts := func(ctx context.Context, lasting time.Duration) (load.Answer, error) {
		return load.Ask(ctx, caller, url, load.Request{Operation: load.Put, InFlight: 32, Rate: putRate, Duration: lasting})
	}
	// A slice is a little longer than a snapshot takes while there are puts: all of one is in it.
	length, err := s.length(ctx, puts)
	if err != nil {
		return nil, fmt.Errorf("the first snapshot: %w", err)
	}
	slice := max(length+length/8, b.lasting(10*time.Second)).Round(100 * time.Millisecond)
	say("%d pairs of %s each; the first snapshot took %.1f s", count, slice, length.Seconds())

	var with, without [][]float64
	rate := []float64{}
	side := func(during func(ctx context.Context, do func() error) error, memory *[][]float64) bench.Side {
		return func(ctx context.Context) (float64, error) {
			var answer load.Answer
			var looks []float64
			err := during(ctx, func() (err error) {
				looks, err = s.looks(ctx, func() (err error) {
					answer, err = puts(ctx, slice)
					return err
				})
				return err
			})
			*memory, rate = append(*memory, looks), append(rate, answer.Rate())
			return milliseconds(answer.P99), err
		}
	}
	pairs, err := bench.Interleave(ctx, warm, count, side(s.during, &with), side(func(_ context.Context, do func() error) error { return do() }, &without))
	if err != nil {
		return nil, err
	}
	plain := bench.Median(slices.Concat(without[warm:]...))
	var more []float64
	for n := warm; n < len(with); n++ {
		more = append(more, slices.Max(with[n])-bench.Median(without[n]))
	}
	notes := []string{
		b.largeNote(),
		fmt.Sprintf("slices of %s, %d puts of %d bytes to begin in a second, 32 in flight, fsync on; at least %.0f a second were done", slice, putRate, load.ValueSize, slices.Min(rate)),
		fmt.Sprintf("one snapshot after the other, sealed, read to its end and thrown away by the harness on the same machine; %d were complete", len(s.took)),
	}
	return []bench.Result{
		bench.OfPairs(bench.Result{
			Name: "put of a role, p99", What: "how long 99 % of the puts of a role took at most while snapshots were taken", Against: "the same without snapshots", Unit: "ms", Notes: notes,
		}, bench.MedianRatio, bench.AtMost(1.3), pairs),
		bench.OfSamples(bench.Result{
			Name: "node, proportional, more", What: "the largest proportional set size of reeved, consensus, curator and hostsfile in a slice with snapshots, above the median of the slice without beside it", Unit: "MB",
			Notes: append(slices.Clone(notes), fmt.Sprintf("MB are 10^6 bytes; the median without is %.0f MB, looked at every %s", plain, s.every)),
		}, bench.Largest, bench.AtMost(64), more),
		bench.OfSamples(bench.Result{
			Name: "a snapshot", What: "call of StreamSnapshot to its last byte while there are puts", Unit: "s", Notes: notes[:1],
		}, bench.P50, bench.Any(), s.took),
	}, nil
}

// setRecipient has snapshots be sealed.
func setRecipient(ctx context.Context, management clusterv1.ManagementServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	recovery, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	answer, err := management.GetPolicy(ctx, &clusterv1.GetPolicyRequest{})
	if err != nil {
		return err
	}
	policy := answer.GetPolicy()
	policy.RecoveryRecipient = recovery.Recipient().String()
	_, err = management.SetPolicy(ctx, &clusterv1.SetPolicyRequest{Policy: policy})
	return err
}

// snapshots takes snapshots, and looks at the memory of the node.
type snapshots struct {
	management clusterv1.ManagementServiceClient
	pids       []int
	// every is how often the memory is looked at.
	every time.Duration
	// took is how many seconds each complete snapshot took.
	took []float64
}

// take takes one snapshot.
func (s *snapshots) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotPatience)
	defer cancel()
	begun := time.Now()
	stream, err := s.management.StreamSnapshot(ctx, &clusterv1.StreamSnapshotRequest{})
	if err != nil {
		return err
	}
	if err := readAll(stream, io.Discard); err != nil {
		return err
	}
	s.took = append(s.took, time.Since(begun).Seconds())
	return nil
}

// readAll writes the file that a stream has.
func readAll[P interface{ GetData() []byte }](stream interface{ Recv() (P, error) }, to io.Writer) error {
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := to.Write(part.GetData()); err != nil {
			return err
		}
	}
}

// length takes a snapshot while there are puts, and returns how long that took.
func (s *snapshots) length(ctx context.Context, puts func(context.Context, time.Duration) (load.Answer, error)) (time.Duration, error) {
	putting, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := puts(putting, snapshotPatience)
		ended <- err
	}()
	begun := time.Now()
	err := s.take(ctx)
	took := time.Since(begun)
	stop()
	if putting := <-ended; err == nil && !errors.Is(putting, context.Canceled) {
		err = fmt.Errorf("the puts ended by themselves: %w", putting)
	}
	s.took = nil
	return took, err
}

// during takes one snapshot after the other while something is done, and one at least.
func (s *snapshots) during(ctx context.Context, do func() error) error {
	taking, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		// The first one is read to its end, whatever ends before.
		for under := ctx; ; {
			err := s.take(under)
			code := status.Code(err)
			switch {
			case err == nil:
				under = taking
			case under.Err() == nil && (code == codes.ResourceExhausted || code == codes.Unavailable):
				// The member has not noticed yet that the one of the last slice is not read any more, or makes room.
				_ = wait(under, again)
			case under.Err() == nil:
				ended <- err
				return
			}
			if under.Err() != nil {
				ended <- ctx.Err()
				return
			}
		}
	}()
	err := do()
	stop()
	return errors.Join(err, <-ended)
}

// looks returns the memory of all processes, as it was looked at while something was done.
func (s *snapshots) looks(ctx context.Context, do func() error) (looks []float64, err error) {
	looking, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			all := 0.0
			for _, pid := range s.pids {
				memory, err := rollup(pid)
				if err != nil {
					ended <- err
					return
				}
				all += memory.proportional
			}
			looks = append(looks, all)
			if wait(looking, s.every) != nil {
				ended <- nil
				return
			}
		}
	}()
	err = do()
	stop()
	err = errors.Join(err, <-ended)
	return looks, err
}
