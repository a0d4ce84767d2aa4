package cache

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// minPause and maxPause bound the pauses between attempts to read or to watch: short, since the store is on the same machine, and long enough to
	// leave a store that starts alone.
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// Source is where the state comes from: a *store.Store.
type Source interface {
	ReadAll(ctx context.Context) (*store.State, error)
	Watch(ctx context.Context, after int64) clientv3.WatchChan
}

var _ Source = (*store.Store)(nil)

// Snapshot is the state of the cluster at one revision. Nothing of it is changed after it was published.
type Snapshot struct {
	*store.State
	// Directory is what all nodes are shown of each other. In a large cluster it may be behind the state, by moments.
	Directory *hostv1.Directory
	// Sendable is the directory as watches send it. It is the same one as long as the directory is.
	Sendable *Sendable
	// Common is what every node is told besides. It is the same one as long as nothing of it has changed.
	Common *Common

	listing  sync.Once
	curators []string // once they are listed
}

// Common is what every node is told, whichever it is.
type Common struct {
	CA        [][]byte
	Owner     []byte
	Operators []*clusterv1.Operator
	Policy    *clusterv1.ClusterPolicy
	// Plugins is the catalog.
	Plugins map[string]*clusterv1.PluginRecord
	// Generation is that of the store; nil: it is the first one.
	Generation *consensusv1.StoreGeneration
}

// Cache follows a Source.
type Cache struct {
	source    Source
	log       hclog.Logger
	snapshots *event.Value[*Snapshot]
	news      *event.Value[*Snapshot]
	// directory is what was last made into one, draws how often another may be made, values how often one with values of roles that have changed, and late the timer that ends the wait for the next.
	// They belong to Run.
	directory directory
	draws     *rate.Limiter
	values    *rate.Limiter
	late      *time.Timer
	// drawn and valued are when the directories that were told last are paid for, by their bytes: those that told of something else than values, and those that told of values too. They belong to Run as well.
	drawn, valued time.Time
}

// New returns a Cache that holds nothing before Run has read.
func New(source Source, log hclog.Logger) *Cache {
	late := time.NewTimer(0)
	late.Stop()
	return &Cache{
		source: source, log: log, snapshots: new(event.Value[*Snapshot]), news: new(event.Value[*Snapshot]), late: late,
		draws: rate.NewLimiter(rate.Inf, drawsAtOnce), values: rate.NewLimiter(rate.Inf, 1),
	}
}

// Snapshots returns the newest snapshot; there is none before the first read. A snapshot's Cluster is nil while the store has no cluster.
func (c *Cache) Snapshots() *event.Value[*Snapshot] { return c.snapshots }

// News returns the newest of those snapshots that bring another directory, or come after a change of records. The others have a report of a single node: many of them come in a second, and each would
// wake the watch of every node for nothing. Whoever has seen a snapshot finds what is news of it here.
func (c *Cache) News() *event.Value[*Snapshot] { return c.news }

// Run follows the source until ctx is done, whatever happens to the source in between.
func (c *Cache) Run(ctx context.Context) {
	pause := &backoff.ExponentialBackOff{InitialInterval: minPause, MaxInterval: maxPause, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	var reached *store.State
	for ctx.Err() == nil {
		var err error
		if reached == nil {
			reached, err = c.read(ctx)
		}
		if err == nil {
			before := reached.Revision
			reached, err = c.follow(ctx, reached)
			if reached == nil || reached.Revision > before {
				pause.Reset()
			}
		}
		if ctx.Err() != nil {
			return
		}
		wait := pause.NextBackOff()
		c.log.Warn("the watch of the cluster's state was interrupted", "error", err, "again_in", wait.Round(time.Millisecond))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (c *Cache) read(ctx context.Context) (*store.State, error) {
	state, err := c.source.ReadAll(ctx)
	if err != nil {
		return nil, err
	}
	c.publish(state, true)
	return state, nil
}

// follow watches from a state on, and returns the state that it reached when the watch broke: nil if everything must be read again.
func (c *Cache) follow(ctx context.Context, state *store.State) (*store.State, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also frees the watch in the client
	for watch := c.source.Watch(ctx, state.Revision); ; {
		var response clientv3.WatchResponse
		open := true
		select {
		case response, open = <-watch:
		case <-c.late.C:
			c.publish(state, false)
			continue
		}
		if !open {
			return state, errors.New("the store ended the watch")
		}
		if response.CompactRevision > 0 {
			return nil, response.Err()
		}
		if err := response.Err(); err != nil {
			return state, err
		}
		switch last := len(response.Events) - 1; {
		case last >= 0:
			// Not the header's revision: a watch that catches up is sent in parts, each with the newest revision in its header.
			revision := response.Events[last].Kv.ModRevision
			held := slices.DeleteFunc(response.Events, func(event *clientv3.Event) bool { return !store.Holds(string(event.Kv.Key)) })
			state = state.Apply(revision, held)
			// Of what is in no snapshot nobody is woken, which would be every watch of every node.
			if len(held) > 0 {
				c.publish(state, slices.ContainsFunc(held, func(event *clientv3.Event) bool { return !store.Reported(string(event.Kv.Key)) }))
			}
		case response.IsProgressNotify():
			// Kept for a resumed watch, and no news to anybody.
			state = state.Apply(response.Header.GetRevision(), nil)
		}
	}
}

// publish makes a state the newest snapshot. changed says that records may have changed since the one before.
func (c *Cache) publish(state *store.State, changed bool) {
	last, _ := c.snapshots.Get()
	for _, key := range slices.Sorted(maps.Keys(state.Damaged)) {
		if last == nil || last.Damaged[key] == nil {
			c.log.Error("a record of the cluster cannot be read and is left out", "error", state.Damaged[key])
		}
	}
	next := &Snapshot{State: state}
	if last != nil {
		next.Directory, next.Sendable, next.Common = last.Directory, last.Sendable, last.Common
	}
	if wait := due(c.draws, c.drawn, last, drawEvery); wait > 0 {
		c.late.Reset(wait)
	} else {
		c.draw(next, due(c.values, c.valued, last, valuesEvery))
	}
	if common := commonOf(state); next.Common == nil || !next.Common.is(common) {
		next.Common = common
	}
	if changed || last == nil || next.Sendable != last.Sendable {
		c.news.Set(next)
	}
	c.snapshots.Set(next)
}

// drawEvery is what one more directory is waited for, for each node of it: some three times what it takes to tell one node of a change. Changes that come closer together are
// told together: otherwise a cluster whose nodes come at once would have its curators do nothing else, its heartbeats among that.
const drawEvery = 120 * time.Microsecond

// drawsAtOnce is how many directories are made at once after a time without any: one that is changed by hand changes more than once by it, when a role is assigned, when
// it is Starting and when it is Ready.
const drawsAtOnce = 4

// fewNodes is up to how many nodes every change is told by itself.
const fewNodes = 64

// valuesEvery is what drawEvery is, where nothing but values of roles has changed. Roles may change these each second, and whoever waits for one can wait some tenths of a second longer: to
// tell 1,000 nodes of ten values a second, each by itself, took half a core.
const valuesEvery = 400 * time.Microsecond

// valuesPace and drawPace are how many bytes a second are told to all nodes together, by directories with values that have changed, and by others. A role may change 32 KiB of values on each node, each
// second: to tell 1,000 nodes of 8 KiB of each other were 4 GB a second.
const (
	valuesPace = 64 << 20
	drawPace   = 256 << 20
)

// mostLate is how long all that is told of nodes beside values waits at most.
const mostLate = 5 * time.Second

// due returns how long the next directory has to wait for a limiter, which allows one in every for each node, and until what was told before is paid for.
func due(limiter *rate.Limiter, paid time.Time, last *Snapshot, every time.Duration) time.Duration {
	if last == nil || len(last.Directory.GetNodes()) <= fewNodes {
		return 0
	}
	every *= time.Duration(len(last.Directory.GetNodes()))
	now := time.Now()
	limiter.SetLimitAt(now, rate.Every(every))
	// Rounded up: a timer that ends a moment before its time would be set again for nothing.
	return max(paid.Sub(now), time.Duration(math.Ceil(max(0, 1-limiter.TokensAt(now))*float64(every))))
}

// excess is how much longer than every for each node it takes to tell all nodes of those of a directory that have changed, at a pace. It is as if all of them had this curator tell them.
func excess(directory *hostv1.Directory, changed []string, every time.Duration, pace int) time.Duration {
	bytes := 0
	for _, node := range directory.GetNodes() {
		if _, is := slices.BinarySearch(changed, node.GetNodeId()); is {
			bytes += proto.Size(node)
		}
	}
	return time.Duration(len(directory.GetNodes())) * max(0, time.Duration(bytes)*time.Second/time.Duration(pace)-every)
}

// draw puts the directory of its state into a snapshot, in the place of the one before. Nodes of which nothing but values has changed stay as they were if values have to wait.
func (c *Cache) draw(next *Snapshot, values time.Duration) {
	c.late.Stop()
	directory, changed, held := c.directory.draw(next.State, values > 0)
	if held {
		c.late.Reset(values)
	}
	if next.Directory != nil && len(changed) == 0 {
		return
	}
	c.draws.Allow()
	if values == 0 {
		c.values.Allow()
	}
	switch now := time.Now(); {
	case next.Directory == nil: // of the first one each node is told by its own watch, whenever that begins
	case values == 0:
		c.valued = now.Add(excess(directory, changed, valuesEvery, valuesPace))
	default:
		// A node of which more has changed is told with its values. Whether a node is there has to be told soon, however many they are.
		c.drawn = now.Add(min(excess(directory, changed, drawEvery, drawPace), mostLate))
	}
	directory.Revision = uint64(next.Revision)
	next.Directory, next.Sendable = directory, after(next.Sendable, directory, changed)
}

func commonOf(state *store.State) *Common {
	return &Common{CA: state.CA, Owner: state.Cluster.GetOwnerPublicKey(), Operators: state.OperatorList(), Policy: state.Demands(), Plugins: state.Plugins,
		Generation: state.Generation}
}

// is reports whether two are the same, record by record.
func (c *Common) is(other *Common) bool {
	return slices.EqualFunc(c.CA, other.CA, bytes.Equal) && bytes.Equal(c.Owner, other.Owner) && slices.Equal(c.Operators, other.Operators) &&
		proto.Equal(c.Policy, other.Policy) && maps.Equal(c.Plugins, other.Plugins) && proto.Equal(c.Generation, other.Generation)
}
