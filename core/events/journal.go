package events

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// maxRecent is how many events are kept in memory, and maxRecentSize how large they are together, in bytes: what readers who follow need, and
	// what a disk that is stuck for a moment holds up.
	maxRecent     = 1024
	maxRecentSize = 1 << 20
	// ahead is how far the numbers of events that are shown may be ahead of what is on disk.
	ahead = 1024
	// defaultMaxBytes is the size from which a file is put aside.
	defaultMaxBytes = 4 << 20
)

// Config is what a journal needs.
type Config struct {
	// Log takes the journal's own log; nil: none is written.
	Log hclog.Logger
	// Path is the file; with ".1" added it names the one before.
	Path string
	// MaxBytes is the size from which the file is put aside; 0: 4 MiB, which is weeks of an ordinary node and little on the smallest disk.
	MaxBytes int64
}

// Journal is the events of a node. There is one for each file.
type Journal struct {
	config Config
	// newest is the highest number that may be shown. Set with mu held.
	newest event.Value[uint64]
	// written is the highest number that is on disk. Set with mu held.
	written event.Value[uint64]
	// wake has something in it if there may be something to write.
	wake  chan struct{}
	files files

	mu sync.Mutex
	// recent is the events after floor, without a gap in their numbers.
	recent []entry
	floor  uint64
	size   int
	// group is what is being written, with the numbers up to taken.
	group []entry
	taken uint64
	// last is the highest number given, and durable the highest that is on disk. Numbers up to showable may be shown.
	last, durable, showable uint64
	// lost is how many events were dropped since that was last recorded.
	lost uint64
}

// entry is an event in memory. It does not change any more.
type entry struct {
	event *nodev1.Event
	size  int
	// lost is how many lost events an EventsDropped stands for.
	lost uint64
}

// counts is how many events are lost with this one.
func (e entry) counts() uint64 { return max(e.lost, 1) }

// Open returns the journal whose file is there, or a new one. It reads the file for its last event, and what it cannot read of it is no error; that the path is
// something else than a file is.
func Open(config Config) (*Journal, error) {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.MaxBytes <= 0 {
		config.MaxBytes = defaultMaxBytes
	}
	j := &Journal{config: config, wake: make(chan struct{}, 1), files: files{log: config.Log, path: config.Path, max: config.MaxBytes}}
	found, exists, err := j.files.newest()
	if err != nil {
		return nil, fmt.Errorf("events: the journal of events %s: %w", config.Path, err)
	}
	if exists {
		found += ahead // the core before may have shown as much, and what it wrote last may be lost
	}
	j.last, j.durable, j.showable, j.taken, j.floor = found, found, found, found, found
	j.newest.Set(j.visible())
	j.written.Set(j.durable)
	return j, nil
}

// Sync waits until all that was recorded before is on disk, or was lost. It fails only with the context's error.
func (j *Journal) Sync(ctx context.Context) error {
	last := j.given()
	_, err := j.written.Wait(ctx, func(upTo uint64) bool { return upTo >= last })
	return err
}

// visible is the highest number that may be shown: none that a core after this one could give again.
func (j *Journal) visible() uint64 { return max(j.durable, min(j.last, j.showable)) }

// Record implements Recorder. Texts are cleaned of control characters and cut where they are too long.
func (j *Journal) Record(e *nodev1.Event) {
	if e == nil {
		return
	}
	kept := bounded(e)
	j.mu.Lock()
	j.add(kept, 0)
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// add numbers an event and puts it into memory, which makes room for it, though not for one that says what was lost of that: it would cost another. mu is
// held.
func (j *Journal) add(e *nodev1.Event, lost uint64) {
	j.last++
	e.Sequence, e.Time = j.last, timestamppb.Now()
	added := entry{event: e, size: proto.Size(e), lost: lost}
	j.recent = append(j.recent, added)
	j.size += added.size
	drop := 0
	for ; lost == 0 && (len(j.recent)-drop > maxRecent || j.size > maxRecentSize); drop++ {
		oldest := j.recent[drop]
		j.size -= oldest.size
		j.floor = oldest.event.GetSequence()
		if j.floor > j.taken {
			j.lost += oldest.counts()
		}
		j.recent[drop] = entry{}
	}
	j.recent = j.recent[drop:]
	j.newest.Set(j.visible())
}

// take returns what is to be written next: what was taken before and could not be written, or else all that is not on disk. wrote is called when it is there.
func (j *Journal) take() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.group) == 0 {
		for _, e := range j.recent {
			if e.event.GetSequence() > j.durable {
				j.group = append(j.group, e)
			}
		}
		j.taken = j.last
	}
	return j.group
}

// wrote notes that what was taken is on disk. What was lost is recorded now that the disk takes events: one event tells all that one failure of the disk
// has cost.
func (j *Journal) wrote() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.group, j.durable, j.showable = nil, j.taken, j.taken+ahead
	j.written.Set(j.durable)
	if lost := j.lost; lost > 0 {
		j.lost = 0
		j.add(&nodev1.Event{
			Severity: nodev1.Severity_SEVERITY_WARNING,
			Type:     EventsDropped,
			Message:  fmt.Sprintf("%d events were lost: they could not be written to the journal in time", lost),
			Details:  map[string]string{"count": strconv.FormatUint(lost, 10)},
		}, lost)
		return
	}
	j.newest.Set(j.visible())
}

// inMemory returns the events after a number that may be shown, at most batch, if memory has all of them. If it does not, the files have those up to floor.
func (j *Journal) inMemory(after uint64) (events []*nodev1.Event, floor uint64, all bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if after < j.floor {
		return nil, j.floor, false
	}
	visible := j.visible()
	for at := after - j.floor; at < uint64(len(j.recent)) && len(events) < batch; at++ {
		if e := j.recent[at].event; e.GetSequence() <= visible {
			events = append(events, e)
		}
	}
	return events, j.floor, true
}

// state is the number up to which events may be shown, the one after which they are in memory, and the one up to which they are on disk.
func (j *Journal) state() (visible, floor, durable uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.visible(), j.floor, j.durable
}

// given is the highest number that was given.
func (j *Journal) given() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

// retryWrite is how long the journal waits before it tries again to write to a disk that refused.
const retryWrite = time.Second

// Run writes events to disk until the context ends, and then what is there by then. It returns nil always: a node works without a journal that can be
// written, and its log says so. Whoever records should have ended before; what is recorded later is lost with the process. It may be called once.
func (j *Journal) Run(ctx context.Context) error {
	for failing, ended := false, false; !ended; {
		ended = !j.wait(ctx, failing)
		err := j.flush()
		switch {
		case err != nil && ended:
			j.config.Log.Error("the last events could not be written to the journal", "file", j.config.Path, "error", err)
		case err != nil && !failing:
			j.config.Log.Error("events cannot be written to the journal and are kept in memory as far as they fit: make room on the disk, or look at what is wrong with it",
				"file", j.config.Path, "error", err)
		case err == nil && failing:
			j.config.Log.Info("events can be written to the journal again", "file", j.config.Path)
		}
		failing = err != nil
	}
	return nil
}

// wait returns when there may be something to write, and false when the context has ended. While the disk fails, it waits for a pause instead, however much is
// recorded.
func (j *Journal) wait(ctx context.Context, failing bool) bool {
	wake, again := j.wake, (<-chan time.Time)(nil)
	if failing {
		wake, again = nil, time.After(retryWrite)
	}
	select {
	case <-ctx.Done():
		return false
	case <-again:
	case <-wake:
	}
	return true
}

// flush writes all that is in memory only.
func (j *Journal) flush() error {
	for {
		group := j.take()
		if len(group) == 0 {
			return nil
		}
		if err := j.write(group); err != nil {
			return err
		}
		j.wrote()
	}
}

func (j *Journal) write(group []entry) error {
	var lines []byte
	var err error
	for _, e := range group {
		if lines, err = appendEvent(lines, e.event); err != nil {
			// Nothing that bounded has made is refused, but a mistake there must not keep the others from the disk for ever.
			j.config.Log.Error("an event cannot be encoded", "type", e.event.GetType(), "sequence", e.event.GetSequence(), "error", err)
		}
	}
	return j.files.write(lines, group[0].event.GetSequence()-1)
}
