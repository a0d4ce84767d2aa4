package events

import (
	"context"
	"io"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// batch is how many events a reader gets at a time, and batchSize how large they are together, in bytes and by about the size of one event. What a
	// reader holds is bounded by it, however slow the reader is.
	batch     = 128
	batchSize = 256 << 10
)

// Query says which events are read.
type Query struct {
	// After leaves out the events up to this number. Where later ones are gone, too, what follows is the oldest that is kept.
	After uint64
	// Tail leaves out all but the last ones of those that are kept; 0: none.
	Tail uint32
	// Follow goes on with what is recorded.
	Follow bool
}

// Reader reads events in their order, each of them once. It belongs to one goroutine.
type Reader struct {
	journal *Journal
	query   Query
	newest  *event.Watcher[uint64]
	// began says that the query was looked at; until is where a reader that does not follow ends.
	began bool
	until uint64
	// after is the number of the last event that was returned, or that is gone.
	after uint64

	// What is being read of the files; part is nil where that is memory. next is the lowest number of a file that has not been read.
	part  *part
	lines *lines
	next  uint64
	// corrupt counts the lines that could not be read.
	corrupt, reported int
}

// Read returns a reader, which is to be closed.
func (j *Journal) Read(query Query) *Reader {
	return &Reader{journal: j, query: query, newest: j.newest.Watch()}
}

// Next returns the next events, at least one. At the end it returns io.EOF, or waits for more if the query says so. It fails if the context ends, or if the
// journal cannot be read.
func (r *Reader) Next(ctx context.Context) ([]*nodev1.Event, error) {
	if !r.began {
		if err := r.begin(); err != nil {
			return nil, err
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// Before memory is looked at: what is recorded afterwards then wakes.
		_, _ = r.newest.Latest()
		if !r.query.Follow && r.after >= r.until {
			return nil, io.EOF
		}
		events, floor, all := r.journal.inMemory(r.after)
		if !all {
			var err error
			if events, err = r.fromFiles(); err != nil {
				return nil, err
			}
			if len(events) == 0 {
				// Those up to there are gone.
				r.after = max(r.after, floor)
			}
		} else {
			r.release()
		}
		if len(events) > 0 {
			r.after = events[len(events)-1].GetSequence()
			return events, nil
		}
		if !all {
			continue
		}
		if !r.query.Follow {
			return nil, io.EOF
		}
		select {
		case <-ctx.Done():
		case <-r.newest.Changed():
		}
	}
}

// Corrupt is how many lines of the files could not be read so far.
func (r *Reader) Corrupt() int { return r.corrupt }

// Close gives up the reader.
func (r *Reader) Close() { r.release() }

// begin turns the query into a position.
func (r *Reader) begin() error {
	visible, floor, _ := r.journal.state()
	r.until = visible
	// A number that was never given asks for nothing that is there.
	r.after = min(r.query.After, visible)
	if tail := uint64(r.query.Tail); tail > 0 {
		start := visible - min(visible, tail)
		if start < floor {
			var err error
			if start, err = r.journal.tailInFiles(tail-(visible-floor), floor); err != nil {
				return err
			}
		}
		r.after = max(r.after, start)
	}
	r.began = true
	return nil
}

// fromFiles returns the next events of the files, none if they have no more.
func (r *Reader) fromFiles() ([]*nodev1.Event, error) {
	_, _, durable := r.journal.state()
	var events []*nodev1.Event
	for size := 0; len(events) < batch && size < batchSize; {
		if r.part == nil {
			if ok, err := r.open(); err != nil || !ok {
				return events, err
			}
		}
		extent, later, err := r.journal.disk.extent(r.part)
		if err != nil {
			return nil, err
		}
		line, ok, err := r.lines.next(extent)
		switch {
		case err != nil:
			return nil, err
		case !ok && later:
			r.next = r.part.number + 1
			r.release()
		case !ok:
			return events, nil
		case len(line) == 0 && line != nil:
			// It ends one that an earlier core left torn.
		default:
			e, _, err := parseLine(line)
			if err != nil || e.GetSequence() > durable {
				r.corrupt++
			} else if e.GetSequence() > r.after {
				r.after = e.GetSequence()
				events = append(events, e)
				size += len(line)
			}
		}
	}
	return events, nil
}

// open opens the next file at about the next event.
func (r *Reader) open() (bool, error) {
	opened, err := r.journal.disk.openFrom(r.next)
	if err != nil || opened == nil {
		return false, err
	}
	r.part = opened
	extent, _, err := r.journal.disk.extent(opened)
	if err != nil {
		return false, err
	}
	if !ours(opened.file) {
		r.corrupt++
		r.lines = newLines(opened.file, extent)
		return true, nil
	}
	offset, err := offsetAfter(opened.file, extent, r.after)
	if err != nil {
		return false, err
	}
	r.lines = newLines(opened.file, max(offset-1, 0))
	if offset > 0 {
		_, _, err = r.lines.next(extent)
	}
	return true, err
}

// release closes the file that is being read.
func (r *Reader) release() {
	if r.part != nil {
		_ = r.part.file.Close()
		r.part, r.lines = nil, nil
	}
	if r.corrupt > r.reported {
		r.journal.config.Log.Warn("lines of the journal of events could not be read and were left out", "file", r.journal.config.Path, "lines", r.corrupt)
		r.reported = r.corrupt
	}
}

// tailInFiles returns the number before that of the event of which count follow in the files up to a number, itself included.
func (j *Journal) tailInFiles(count, upTo uint64) (uint64, error) {
	start, left := uint64(0), count
	for _, p := range j.disk.newestFirst() {
		extent, _, err := j.disk.extent(p)
		if err == nil && left > 0 && ours(p.file) {
			seen := upTo + 1
			err = backwards(p.file, extent, func(line []byte, _ int64) bool {
				e, _, err := parseLine(line)
				if err == nil && e != nil && e.GetSequence() < seen {
					seen = e.GetSequence()
					start, left = seen-1, left-1
				}
				return left > 0
			})
			upTo = seen - 1
		}
		_ = p.file.Close()
		if err != nil {
			return 0, err
		}
	}
	return start, nil
}
