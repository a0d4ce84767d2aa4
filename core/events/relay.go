package events

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// maxWaiting is how many events, the newest, wait for the journal to be opened.
const maxWaiting = 64

// Relay is a Recorder that has the journal only while the volume is open. Events that happen meanwhile are recorded when it is opened again. Their detail
// `at` says when they happened. The zero value is ready for use.
type Relay struct {
	mu      sync.Mutex
	to      Recorder
	waiting []*nodev1.Event
}

// Record implements Recorder.
func (r *Relay) Record(event *nodev1.Event) {
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
	kept.Details["at"] = time.Now().UTC().Format(time.RFC3339)
	r.waiting = append(r.waiting, kept)
	if more := len(r.waiting) - maxWaiting; more > 0 {
		r.waiting = r.waiting[more:]
	}
}

// Open records the events that wait, and from now on every new one at once.
func (r *Relay) Open(to Recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, event := range r.waiting {
		to.Record(event)
	}
	r.waiting = nil
}

// Close makes new events wait.
func (r *Relay) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = nil
}
