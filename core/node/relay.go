package node

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/events"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// maxWaiting is how many events wait for the journal to be opened, the newest.
const maxWaiting = 64

// relay is a Recorder that has the journal only while the volume is open. What happens meanwhile is recorded when it is opened again, with the time at which it
// happened among the details.
type relay struct {
	now func() time.Time

	mu      sync.Mutex
	to      events.Recorder
	waiting []*nodev1.Event
}

// Record implements events.Recorder.
func (r *relay) Record(event *nodev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to != nil {
		r.to.Record(event)
		return
	}
	kept := proto.CloneOf(event)
	if kept.Details == nil {
		kept.Details = make(map[string]string)
	}
	kept.Details["at"] = r.now().UTC().Format(time.RFC3339)
	r.waiting = append(r.waiting, kept)
	if more := len(r.waiting) - maxWaiting; more > 0 {
		r.waiting = r.waiting[more:]
	}
}

// open gives what waits, and what comes, to the journal.
func (r *relay) open(to events.Recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, event := range r.waiting {
		to.Record(event)
	}
	r.waiting = nil
}

// close has what comes wait.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = nil
}

// unless is a Recorder that leaves out what is not so.
type unless struct {
	events.Recorder
	not func(event *nodev1.Event) bool
}

// Record implements events.Recorder.
func (u unless) Record(event *nodev1.Event) {
	if !u.not(event) {
		u.Recorder.Record(event)
	}
}
