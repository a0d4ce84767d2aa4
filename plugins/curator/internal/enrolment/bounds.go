package enrolment

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
)

const (
	// atOnce is how many registrations one curator makes at a time. Each reads all nodes, and they get in each other's way in the store; a rack that is
	// switched on at once takes its turns, for turnWithin each.
	atOnce     = 4
	turnWithin = 5 * time.Second
	// failuresBurst and failuresEvery bound how often strangers at one address may fail: so many at once, and then one in that time. A secret cannot be guessed
	// in any number of tries; it is the store that is not to be asked for nothing.
	failuresBurst = 30
	failuresEvery = 2 * time.Second
	// mostHosts is of how many addresses failures are counted. Beyond it those are forgotten that have none left to make up for, and then any.
	mostHosts = 4096
)

// turn waits until one more registration may be made, and returns what ends it.
func (s *Service) turn(ctx context.Context) (done func(), err error) {
	waiting := time.NewTimer(turnWithin)
	defer waiting.Stop()
	select {
	case s.registering <- struct{}{}:
		return func() { <-s.registering }, nil
	case <-waiting.C:
		return nil, answer.Errorf(codes.ResourceExhausted, "too many machines register at once: try again in a moment")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// failures counts the failed calls of strangers, by host.
type failures struct {
	now func() time.Time

	mu sync.Mutex
	by map[string]*rate.Limiter
}

func newFailures(now func() time.Time) *failures {
	return &failures{now: now, by: make(map[string]*rate.Limiter)}
}

// allow reports whether a host may try once more.
func (f *failures) allow(host string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	limiter := f.by[host]
	return limiter == nil || limiter.TokensAt(f.now()) >= 1
}

// note counts a failure of a host.
func (f *failures) note(host string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	limiter := f.by[host]
	if limiter == nil {
		f.room(now)
		limiter = rate.NewLimiter(rate.Every(failuresEvery), failuresBurst)
		f.by[host] = limiter
	}
	limiter.AllowN(now, 1)
}

// room makes room for one more host.
func (f *failures) room(now time.Time) {
	if len(f.by) < mostHosts {
		return
	}
	for host, limiter := range f.by {
		if limiter.TokensAt(now) >= failuresBurst {
			delete(f.by, host)
		}
	}
	for host := range f.by {
		if len(f.by) < mostHosts {
			return
		}
		delete(f.by, host)
	}
}

// host is the host of an address; an IPv6 one counts by its network, of which a machine has all addresses.
func host(address string) string {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(name); ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return name
}
