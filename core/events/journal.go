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
	// Now is the time of events; nil: time.Now.
	Now func() time.Time
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
	wake chan struct{}
	disk *disk

	mu sync.Mutex
	// recent is the events after floor, without a gap in their numbers.
	recent []entry
	floor  uint64
	size   int
	// last is the highest number given, and durable the highest that is on disk. Numbers up to showable may be shown. What is up to writing is being
	// written, and no longer lost if memory makes room.
	last, durable, showable, writing uint64
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

// Open returns the journal whose file is there, or a new one. It reads only the end of the file, and what it cannot read of it is no error; that the path is
// something else than a file is.
func Open(config Config) (*Journal, error) {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.MaxBytes <= 0 {
		config.MaxBytes = defaultMaxBytes
	}
	d, found, err := openDisk(config.Path, config.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("events: the journal of events %s: %w", config.Path, err)
	}
	if found.foreign {
		config.Log.Warn("the journal of events is of another version of this program and is put aside", "file", config.Path)
	}
	j := &Journal{config: config, disk: d, wake: make(chan struct{}, 1)}
	j.durable, j.last = found.sequence, found.sequence
	if found.any {
		j.showable = found.certain + ahead
		if !found.ended {
			// The core that wrote it may have shown as much, and what it wrote last may be lost.
			j.last = found.sequence + ahead
		}
	}
	j.floor = j.last
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
	e.Sequence, e.Time = j.last, timestamppb.New(j.config.Now())
	added := entry{event: e, size: proto.Size(e), lost: lost}
	j.recent = append(j.recent, added)
	j.size += added.size
	drop := 0
	for ; lost == 0 && (len(j.recent)-drop > maxRecent || j.size > maxRecentSize); drop++ {
		oldest := j.recent[drop]
		j.size -= oldest.size
		j.floor = oldest.event.GetSequence()
		if j.floor > max(j.durable, j.writing) {
			j.lost += oldest.counts()
		}
		j.recent[drop] = entry{}
	}
	j.recent = j.recent[drop:]
	j.newest.Set(j.visible())
}

// take returns the events that are not on disk yet, and the number up to which all is there when they are. wrote or failed is to be called next.
func (j *Journal) take() (group []entry, upTo uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.recent {
		if e.event.GetSequence() > j.durable {
			group = append(group, e)
		}
	}
	j.writing = j.last
	return group, j.last
}

// failed takes note that a group is not on disk: what memory has no more of it is lost.
func (j *Journal) failed(group []entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writing = 0
	for _, e := range group {
		if e.event.GetSequence() <= j.floor {
			j.lost += e.counts()
		}
	}
}

// wrote takes note that all events up to a number are on disk, or lost. What was lost is recorded now that the disk takes events: there is one event for all
// that one failure of the disk has cost.
func (j *Journal) wrote(upTo uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.durable, j.showable, j.writing = upTo, upTo+ahead, 0
	j.written.Set(upTo)
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
