package events

import (
	"context"
	"io"
	"math"
	"os"
	"syscall"

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

	// offsets is how much of each file was read.
	offsets map[fileID]int64
	// corrupt counts the lines that could not be read.
	corrupt, reported int
}

// fileID tells files apart. The number of a file that is gone may be used again, but its first line is not.
type fileID struct {
	inode uint64
	first string
	// begun is false while the first line is not whole.
	begun bool
}

// Read returns a reader, which is to be closed.
func (j *Journal) Read(query Query) *Reader {
	return &Reader{journal: j, query: query, newest: j.newest.Watch(), offsets: make(map[fileID]int64)}
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
			r.report()
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
func (r *Reader) Close() { r.report() }

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

// fromFiles returns the next events of the files, none if they have no more. It opens them each time: a slow reader keeps no file that was put aside.
func (r *Reader) fromFiles() (events []*nodev1.Event, err error) {
	_, _, durable := r.journal.state()
	given, size := r.journal.given(), 0
	take := func(line []byte) (more bool) {
		if seen := sequenceOf(line); seen != 0 && seen <= r.after || len(line) == 0 {
			return true // an empty line ends one that an earlier core left torn
		}
		e, _, err := parseLine(line)
		if err != nil || e.GetSequence() > given {
			r.corrupt++
		} else if e.GetSequence() > r.after {
			r.after = e.GetSequence()
			events = append(events, e)
			size += len(line)
		}
		return len(events) < batch && size < batchSize
	}
	err = r.journal.files.each(func(file *os.File) error {
		id, err := identify(file)
		if err != nil || !id.begun || len(events) > 0 {
			return err
		}
		if _, known := r.offsets[id]; !known && !ours([]byte(id.first)) {
			r.corrupt++
			r.offsets[id] = math.MaxInt64
		}
		// The end of the numbers is the end of every file.
		return eachLine(io.NewSectionReader(file, r.offsets[id], math.MaxInt64-r.offsets[id]), func(line []byte, length int) bool {
			if seen := sequenceOf(line); seen > durable && seen <= given {
				return false // it is being written
			}
			r.offsets[id] += int64(length)
			return take(line)
		})
	})
	return events, err
}

// identify returns the ID of a file.
func identify(file *os.File) (fileID, error) {
	info, err := file.Stat()
	if err != nil {
		return fileID{}, err
	}
	id := fileID{}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id.inode = stat.Ino
	}
	return id, eachLine(file, func(line []byte, _ int) bool {
		id.first, id.begun = string(line), true
		return false
	})
}

// report says how many lines could not be read.
func (r *Reader) report() {
	if r.corrupt > r.reported {
		r.journal.config.Log.Warn("lines of the journal of events could not be read and were left out", "file", r.journal.config.Path, "lines", r.corrupt)
		r.reported = r.corrupt
	}
}

// tailInFiles returns the number before that of the event of which count follow in the files up to a number, itself included.
func (j *Journal) tailInFiles(count, upTo uint64) (uint64, error) {
	sequences := []uint64{0}
	err := j.files.each(func(file *os.File) error {
		first := true
		return eachLine(file, func(line []byte, _ int) bool {
			if first && !ours(line) {
				return false
			}
			first = false
			if sequence := sequenceOf(line); sequence > sequences[len(sequences)-1] && sequence <= upTo {
				sequences = append(sequences, sequence)
			}
			return true
		})
	})
	if err != nil || count >= uint64(len(sequences)) {
		return 0, err
	}
	return sequences[uint64(len(sequences))-count] - 1, nil
}
