package events

import (
	"context"
	"fmt"
	"time"
)

// retryWrite is how long the journal waits before it tries again to write to a disk that refused.
const retryWrite = time.Second

// Run writes events to disk until the context ends, and then what is there by then. It returns nil always: a node works without a journal that can be
// written, and its log says so. Whoever records should have ended before; what is recorded later is lost with the process. It may be called once.
func (j *Journal) Run(ctx context.Context) error {
	failing := false
	for {
		err := j.flush()
		switch {
		case err != nil && !failing:
			j.config.Log.Error("events cannot be written to the journal and are kept in memory as far as they fit: make room on the disk, or look at what is wrong with it",
				"file", j.config.Path, "error", err)
		case err == nil && failing:
			j.config.Log.Info("events can be written to the journal again", "file", j.config.Path)
		}
		failing = err != nil
		if !j.wait(ctx, failing) {
			break
		}
	}
	if err := j.end(); err != nil {
		j.config.Log.Error("the last events could not be written to the journal", "file", j.config.Path, "error", err)
	}
	return nil
}

// wait returns when there may be something to write, and false when the context has ended. While the disk fails, it is asked again after a pause only, however
// much is recorded.
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
		group, upTo := j.take()
		if len(group) == 0 {
			return nil
		}
		if err := j.write(group); err != nil {
			j.failed(group)
			return err
		}
		j.wrote(upTo)
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
	if len(lines) == 0 {
		return nil
	}
	return j.disk.write(lines, group[0].event.GetSequence()-1)
}

// end writes the last events, and that they are the last.
func (j *Journal) end() error {
	if err := j.flush(); err != nil {
		return err
	}
	_, _, durable := j.state()
	line, err := mark{Version: version, After: durable, Ended: true}.line()
	if err != nil {
		return err
	}
	if err := j.disk.write(line, durable); err != nil {
		return fmt.Errorf("events: the end of the journal: %w", err)
	}
	return j.disk.close()
}
