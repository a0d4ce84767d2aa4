package nodes

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
)

// What one node may have a curator do. Each report is written to the store, up to 512 KiB of it, and by the cluster user, whom the store does not bound. Cores stay below all of these; who has the
// key of a node need not.
const (
	// A core reports 64 changes at once, and once a second in the long run.
	reportsAtOnce = 128
	reportEvery   = 800 * time.Millisecond
	// Each of 64 roles gets 16 SVIDs at once, and then one in 15 s. Heartbeats that are calls of their own, and streams that begin, are few beside that.
	callsAtOnce = 1024
	callEvery   = 200 * time.Millisecond
	// mostStreams is how many streams a node may have open: a core has two, and those of its former connections are there for some time where the network went without a word.
	mostStreams = 8
)

// pace is that of one node.
type pace struct {
	reports, calls *rate.Limiter
	streams        []*stream // the oldest first
}

// stream is one that is open.
type stream struct{ end context.CancelCauseFunc }

// paces are those of all nodes that have called: no more than the cluster had since the curator started.
type paces struct {
	mu sync.Mutex
	of map[string]*pace
}

// at returns the pace of a node. The caller holds the lock.
func (p *paces) at(node string) *pace {
	if p.of == nil {
		p.of = make(map[string]*pace)
	}
	if p.of[node] == nil {
		p.of[node] = &pace{reports: rate.NewLimiter(rate.Every(reportEvery), reportsAtOnce), calls: rate.NewLimiter(rate.Every(callEvery), callsAtOnce)}
	}
	return p.of[node]
}

// reports counts a report, or says why it is one too many.
func (p *paces) reports(node string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at(node).reports.AllowN(now, 1) {
		return tooFast(node, "reports its status", reportsAtOnce, reportEvery)
	}
	return nil
}

// calls counts another call.
func (p *paces) calls(node string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at(node).calls.AllowN(now, 1) {
		return tooFast(node, "asks for SVIDs and streams, or sends heartbeats,", callsAtOnce, callEvery)
	}
	return nil
}

func tooFast(node, does string, atOnce int, every time.Duration) error {
	return answer.Errorf(codes.ResourceExhausted, "node %s %s more often than any core does: it may do so %d times at once and then once in %v: wait, and do so less often", node, does, atOnce, every)
}

// open counts a stream until end is called. Beyond so many the oldest one is ended: the newest is that of the core as it is now.
func (p *paces) open(ctx context.Context, node string) (counted context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	opened := &stream{cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.at(node)
	if len(of.streams) >= mostStreams {
		of.streams[0].end(answer.Errorf(codes.ResourceExhausted, "node %s has opened more than %d streams, which is the most, and this one was the oldest: end those that are not used", node, mostStreams))
		of.streams = slices.Delete(of.streams, 0, 1)
	}
	of.streams = append(of.streams, opened)
	return ctx, func() {
		cancel(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		of.streams = slices.DeleteFunc(of.streams, func(other *stream) bool { return other == opened })
	}
}
