package crowd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Settings is the cluster that a crowd comes to.
type Settings struct {
	ClusterID string   `json:"cluster_id"`
	Curators  []string `json:"curators"`
	// Pins are the SHA-256 of the public keys of the certificates of the cluster CA.
	Pins [][]byte `json:"pins"`
	// Tickets approve by themselves; node n comes with the ticket n / UsesPerTicket.
	Tickets []Ticket `json:"tickets"`
	// Roles is what every node asks for.
	Roles []string `json:"roles"`
}

// Ticket is what a node shows.
type Ticket struct {
	ID     string `json:"id"`
	Secret []byte `json:"secret"`
}

// UsesPerTicket is how many nodes come with one ticket: as many as a ticket has at most.
const UsesPerTicket = 1000

// joining is how many nodes register at a time, and opening how many open their watch.
const (
	joining = 4
	opening = 16
)

// Crowd is the nodes.
type Crowd struct {
	settings Settings
	members  []*member
	lives    sync.WaitGroup
	want     atomic.Pointer[target]
	received atomic.Int64 // bytes

	mu       sync.Mutex
	counts   Counts
	failures map[string]string
}

// Counts is what has happened to the nodes since Counted was last called.
type Counts struct {
	// Beats is how many heartbeats there were, BeatsFailed how many of those failed, and SlowestBeat how long the slowest took.
	Beats       int           `json:"beats"`
	BeatsFailed int           `json:"beats_failed"`
	SlowestBeat time.Duration `json:"slowest_beat"`
	// Published is how often the value that a node publishes has changed, and Received how many bytes have come on the connections of all nodes.
	Published int   `json:"published"`
	Received  int64 `json:"received"`
	// Refused is how many calls of any kind were refused since a node makes too many.
	Refused int `json:"refused"`
	// Failures is how many other calls and watches failed, and Last the last such by what was called.
	Failures int               `json:"failures"`
	Last     map[string]string `json:"last,omitempty"`
}

// New returns a crowd without a node.
func New(settings Settings) *Crowd {
	return &Crowd{settings: settings, failures: make(map[string]string)}
}

// Nodes returns the IDs of all nodes.
func (c *Crowd) Nodes() []string {
	ids := make([]string, 0, len(c.members))
	for _, m := range c.members {
		ids = append(ids, m.id)
	}
	return ids
}

// Grow has so many nodes come that there are count, and returns when every one of them has its watch. They live until ctx ends.
func (c *Crowd) Grow(ctx context.Context, count int) error {
	var coming []*member
	for n := len(c.members); n < count; n++ {
		if n/UsesPerTicket >= len(c.settings.Tickets) {
			return fmt.Errorf("%d tickets are not enough for %d nodes", len(c.settings.Tickets), count)
		}
		coming = append(coming, &member{crowd: c, address: addressOf(n + 1)})
	}
	first := len(c.members)
	if err := each(coming, joining, func(n int, m *member) error {
		return m.join(ctx, c.settings.Tickets[(first+n)/UsesPerTicket])
	}); err != nil {
		return err
	}
	err := each(coming, opening, func(_ int, m *member) error {
		ready := make(chan struct{})
		c.lives.Go(func() { m.live(ctx, func() { close(ready) }) })
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	c.members = append(c.members, coming...)
	return err
}

// Wait returns when no node lives any more.
func (c *Crowd) Wait() { c.lives.Wait() }

// each does something with all members, some at a time.
func each(members []*member, atOnce int, do func(n int, m *member) error) error {
	var workers sync.WaitGroup
	var next atomic.Int64
	failed := make([]error, atOnce)
	for worker := range atOnce {
		workers.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(members) {
					return
				}
				if err := do(n, members[n]); err != nil {
					failed[worker] = err
					next.Store(int64(len(members)))
					return
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(failed...)
}

// Target is what all nodes are to see in the directory.
type Target struct {
	Node string `json:"node"`
	// Label is a label with its value, or Role a role that is Ready.
	Label string `json:"label,omitempty"`
	Value string `json:"value,omitempty"`
	Role  string `json:"role,omitempty"`
	// Back says that it is no change: each node is to have its watch again, after the one that it had when this was expected has ended.
	Back bool `json:"back,omitempty"`
}

// target is one that is waited for.
type target struct {
	Target
	left atomic.Int64
	at   time.Duration
	all  chan struct{}
}

// Expect has the nodes look out for a target.
func (c *Crowd) Expect(wanted Target) {
	t := &target{Target: wanted, all: make(chan struct{})}
	t.left.Store(int64(len(c.members)))
	c.want.Store(t)
}

// Seen waits until every node has seen the target that is expected, and returns when the last one has, by Monotonic.
func (c *Crowd) Seen(ctx context.Context) (time.Duration, error) {
	t := c.want.Load()
	if t == nil {
		return 0, errors.New("nothing is expected")
	}
	select {
	case <-t.all:
		return t.at, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d nodes have not seen %+v: %w", t.left.Load(), len(c.members), t.Target, ctx.Err())
	}
}

func (c *Crowd) wanted() *target { return c.want.Load() }

func (t *target) is(node *hostv1.DirectoryNode) bool {
	if node.GetNodeId() != t.Node {
		return false
	}
	if t.Role == "" {
		return node.GetLabels()[t.Label] == t.Value
	}
	for _, role := range node.GetRoles() {
		if role.GetRole() == t.Role && role.GetState() == hostv1.InstanceState_INSTANCE_STATE_READY {
			return true
		}
	}
	return false
}

// was counts one node that has seen it.
func (t *target) was() {
	if t.left.Add(-1) == 0 {
		t.at = Monotonic()
		close(t.all)
	}
}

// Monotonic is the machine's monotonic clock, which is the same one in every process.
func Monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // it has been there since Linux 2.6
	}
	return time.Duration(now.Nano())
}

func (c *Crowd) beat(took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Beats++
	c.counts.SlowestBeat = max(c.counts.SlowestBeat, took)
	if err != nil {
		c.counts.BeatsFailed++
		c.note("heartbeat", err)
	}
}

// Publish has the value that a role of each of so many nodes publishes change once a second, of one node after another, until ctx ends. A node whose report is not answered
// within the second changes it the less often.
func (c *Crowd) Publish(ctx context.Context, nodes int) error {
	if nodes < 1 || nodes > len(c.members) {
		return fmt.Errorf("there are %d nodes, of which %d cannot publish", len(c.members), nodes)
	}
	var publishers sync.WaitGroup
	for n, m := range c.members[:nodes] {
		publishers.Go(func() {
			if pause(ctx, time.Duration(n)*time.Second/time.Duration(nodes)) != nil {
				return
			}
			ticker := time.NewTicker(time.Second)
			defer ticker.Stop()
			for {
				m.shown.Add(1)
				m.report(context.WithoutCancel(ctx), c.settings.Roles) // the last one is to be answered, too
				c.mu.Lock()
				c.counts.Published++
				c.mu.Unlock()
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	publishers.Wait()
	return nil
}

func (c *Crowd) failed(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Failures++
	c.note(what, err)
}

// note keeps what failed last. The caller holds the lock.
func (c *Crowd) note(what string, err error) {
	c.failures[what] = err.Error()
	if status.Code(err) == codes.ResourceExhausted {
		c.counts.Refused++
	}
}

// Counted returns what has happened since it was last called.
func (c *Crowd) Counted() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	counts.Last, counts.Received = c.failures, c.received.Swap(0)
	c.counts, c.failures = Counts{}, make(map[string]string)
	return counts
}
