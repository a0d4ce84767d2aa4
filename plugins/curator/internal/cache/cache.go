package cache

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
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
	// Directory is what all nodes are shown of each other.
	Directory *hostv1.Directory
}

// Cache follows a Source.
type Cache struct {
	source    Source
	log       hclog.Logger
	snapshots *event.Value[*Snapshot]
}

// New returns a Cache that holds nothing before Run has read.
func New(source Source, log hclog.Logger) *Cache {
	return &Cache{source: source, log: log, snapshots: new(event.Value[*Snapshot])}
}

// Snapshots returns the newest snapshot; there is none before the first read. A snapshot's Cluster is nil while the store has no cluster.
func (c *Cache) Snapshots() *event.Value[*Snapshot] { return c.snapshots }

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
	c.publish(state)
	return state, nil
}

// follow watches from a state on, and returns the state that it reached when the watch broke: nil if everything must be read again.
func (c *Cache) follow(ctx context.Context, state *store.State) (*store.State, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also frees the watch in the client
	for response := range c.source.Watch(ctx, state.Revision) {
		if response.CompactRevision > 0 {
			return nil, response.Err()
		}
		if err := response.Err(); err != nil {
			return state, err
		}
		switch last := len(response.Events) - 1; {
		case last >= 0:
			// Not the header's revision: a watch that catches up is sent in parts, each with the newest revision in its header.
			state = state.Apply(response.Events[last].Kv.ModRevision, response.Events)
			c.publish(state)
		case response.IsProgressNotify():
			// Kept for a resumed watch, and no news to anybody.
			state = state.Apply(response.Header.GetRevision(), nil)
		}
	}
	return state, errors.New("the store ended the watch")
}

func (c *Cache) publish(state *store.State) {
	last, _ := c.snapshots.Get()
	for _, key := range slices.Sorted(maps.Keys(state.Damaged)) {
		if last == nil || last.Damaged[key] == nil {
			c.log.Error("a record of the cluster cannot be read and is left out", "error", state.Damaged[key])
		}
	}
	directory := directoryOf(state)
	if last != nil {
		directory.Revision = last.Directory.GetRevision()
		if proto.Equal(directory, last.Directory) {
			directory = last.Directory
		} else {
			directory.Revision = uint64(state.Revision)
		}
	} else {
		directory.Revision = uint64(state.Revision)
	}
	c.snapshots.Set(&Snapshot{State: state, Directory: directory})
}
