package scheduled

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/sdk/event"
)

// Store is what is read and written: a *store.Store.
type Store interface {
	PutSnapshots(ctx context.Context, kept *clusterv1.NodeSnapshots) error
	ca.Keys
}

var _ Store = (*store.Store)(nil)

// Counts is told what the metrics show.
type Counts interface {
	// Snapshots is told when the newest good snapshot of the cluster was asked for, and how many good ones this node has. Zero: there is none.
	Snapshots(newest time.Time, kept int)
	// SnapshotFailed is told of one that failed on this node.
	SnapshotFailed()
}

// Config is what taking snapshots needs.
type Config struct {
	Store     Store
	Snapshots *event.Value[*cache.Snapshot]
	// Member takes snapshots of the member on this node.
	Member    consensusv1.SnapshotServiceClient
	Directory *Directory
	NodeID    string
	Log       hclog.Logger
	Now       func() time.Time
	Counts    Counts
	// Tell is told what somebody has to look at; empty: nothing.
	Tell func(problem string)
	// Publish shows a value to everybody who looks at the node; empty: it shows it no more.
	Publish func(name, value string)
}

type runner struct {
	config    Config
	directory *Directory
	// told is the record of this node as it was last written here, into the store of a generation; nil: it was not.
	told       *clusterv1.NodeSnapshots
	generation *consensusv1.StoreGeneration
	// kept are those in the directory, as it was looked at, by the schedule of then; the zero time: never.
	kept   []*clusterv1.StoredSnapshot
	looked time.Time
	by     *clusterv1.SnapshotSchedule
	// published are the values that are shown.
	published map[string]string
}

// Run takes the snapshots that this node is asked for, until ctx is done.
func Run(ctx context.Context, config Config) {
	r := &runner{config: config, directory: config.Directory}
	for watcher := config.Snapshots.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return
		}
		for again := true; again && ctx.Err() == nil; {
			again = false
			if err := r.tend(ctx, snapshot.State); err != nil && ctx.Err() == nil {
				config.Log.Warn("cannot see to the scheduled snapshots of this node; trying again", "error", err)
			}
			timer := time.NewTimer(lookEvery)
			select {
			case <-watcher.Changed():
			case <-timer.C:
				again = true
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// tend does what is to be done on this node.
func (r *runner) tend(ctx context.Context, state *store.State) error {
	schedule, task := state.Demands().GetSnapshots(), state.SnapshotTask
	own := state.Snapshots[r.config.NodeID]
	if !proto.Equal(state.Generation, r.generation) {
		r.told, r.generation = nil, state.Generation // that store may have less than was written into the former one
	}
	if r.told != nil && r.told.GetEnded().GetNumber() >= own.GetEnded().GetNumber() {
		own = r.told // which the state may not have yet
	}
	now := &clusterv1.NodeSnapshots{NodeId: r.config.NodeID, Ended: own.GetEnded(), Failure: own.GetFailure()}
	ours := schedule != nil && task.GetNodeId() == r.config.NodeID && task.GetNumber() > own.GetEnded().GetNumber()
	if ours {
		if err := r.directory.prepare(); err != nil {
			return err
		}
		failure, err := r.end(ctx, state, task)
		if err != nil {
			return err
		}
		now.Ended, now.Failure = task, failure
	}
	// The state changes often, and the directory does not.
	if ours || r.looked.IsZero() || time.Since(r.looked) >= lookEvery || !proto.Equal(schedule, r.by) {
		kept, err := r.keep(schedule)
		if err != nil {
			return err
		}
		r.kept, r.looked, r.by = kept, time.Now(), schedule
	}
	if now.Snapshots = r.kept; !proto.Equal(now, own) && (own != nil || now.Ended != nil || len(r.kept) > 0) {
		if err := r.config.Store.PutSnapshots(ctx, now); err != nil {
			return err
		}
		r.told = now
	}
	r.tell(state, now)
	return nil
}

// keep removes what was not finished, and those that are too many. Without a schedule all stay.
func (r *runner) keep(schedule *clusterv1.SnapshotSchedule) ([]*clusterv1.StoredSnapshot, error) {
	if err := r.directory.prepare(); err != nil {
		return nil, err
	}
	if schedule == nil {
		return r.directory.List()
	}
	return r.directory.Keep(int(max(1, schedule.GetKeep())))
}

// end has a task ended, and returns why it failed; empty: the snapshot is good. The error is that this curator stops, or another node was asked.
func (r *runner) end(ctx context.Context, state *store.State, task *clusterv1.SnapshotTask) (failure string, err error) {
	// A curator that was killed after it had stored the snapshot goes on from there.
	if file, _, err := r.directory.Open(nameOf(task)); err == nil {
		return "", file.Close()
	}
	r.config.Log.Info("taking a scheduled snapshot", "number", task.GetNumber())
	taking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	superseded := errors.New("another node was asked for it meanwhile")
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if _, err := r.config.Snapshots.Wait(taking, func(now *cache.Snapshot) bool { return now.SnapshotTask.GetNumber() > task.GetNumber() }); err == nil {
			cancel(superseded)
		}
	}()
	err = r.take(taking, state, task)
	ended := context.Cause(taking)
	cancel(nil)
	<-watched
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err == nil:
		r.config.Log.Info("a scheduled snapshot was taken, and is good", "number", task.GetNumber())
		return "", nil
	case errors.Is(ended, superseded):
		return "", ended
	}
	r.config.Counts.SnapshotFailed()
	r.config.Log.Error("a scheduled snapshot failed; another one is due soon", "number", task.GetNumber(), "error", err)
	return limits.Cut(err.Error(), limits.Reason/2), nil
}

// tell tells people how the snapshots of the cluster are, and those of this node.
func (r *runner) tell(state *store.State, own *clusterv1.NodeSnapshots) {
	after := *state
	after.Snapshots = map[string]*clusterv1.NodeSnapshots{}
	for id, kept := range state.Snapshots {
		after.Snapshots[id] = kept
	}
	after.Snapshots[r.config.NodeID] = own
	r.config.Counts.Snapshots(goodAt(&after, r.config.Now()), len(own.GetSnapshots()))
	r.publish(&after)
	told := Problem(&after, r.config.Now())
	if told == "" && own.GetFailure() != "" && state.Demands().GetSnapshots() != nil && Good(&after).GetTask().GetNumber() < own.GetEnded().GetNumber() {
		told = "the scheduled snapshot of the consensus store that this node was to take has failed: " + own.GetFailure()
	}
	r.config.Tell(told)
}

// publish shows the schedule and the newest good snapshot.
func (r *runner) publish(state *store.State) {
	values := map[string]string{snapshot.ValueInterval: "", snapshot.ValueAsked: "", snapshot.ValueRevision: ""}
	if schedule := state.Demands().GetSnapshots(); schedule != nil {
		values[snapshot.ValueInterval] = interval(schedule).String()
		if good := Good(state); good != nil {
			values[snapshot.ValueAsked] = good.GetTask().GetAsked().AsTime().Format(time.RFC3339)
			values[snapshot.ValueRevision] = strconv.FormatInt(good.GetRevision(), 10)
		}
	}
	// The state changes often, and each value that is set is sent to every node.
	for name, value := range values {
		if value != r.published[name] {
			r.config.Publish(name, value)
		}
	}
	r.published = values
}

// goodAt returns when the newest good snapshot was asked for, as the metrics have it: not later than now. One that lies so far ahead that Problem does not take it counts as none, so that whoever compares the
// metric with the time hears of it. The zero time: there is none.
func goodAt(state *store.State, now time.Time) time.Time {
	good, schedule := Good(state), state.Demands().GetSnapshots()
	asked := good.GetTask().GetAsked().AsTime()
	switch ahead := asked.Sub(now); {
	case good == nil, schedule != nil && ahead > 2*interval(schedule):
		return time.Time{}
	case ahead > 0:
		return now
	}
	return asked
}
