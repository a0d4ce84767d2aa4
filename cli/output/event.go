package output

import (
	"fmt"
	"io"
	"time"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Event is something that happened on a node: `reeve events --watch` prints one such document after another.
type Event struct{ *nodev1.Event }

// Events is the document of `reeve events`, the oldest first.
type Events struct {
	NodeID string          `json:"node_id"`
	Events []*nodev1.Event `json:"events"`
}

// The head of a table of events.
var eventHead = []string{"AGE", "SEVERITY", "TYPE", "ROLE", "MESSAGE"}

func eventCells(e *nodev1.Event, now time.Time) []string {
	return []string{age(moment(e.GetTime()), now), Kind(e.GetSeverity()), e.GetType(), e.GetRole(), e.GetMessage()}
}

func (e Events) table(w io.Writer, now time.Time) {
	eventTable(w, e.Events, now)
}

func eventTable(w io.Writer, events []*nodev1.Event, now time.Time) {
	if len(events) == 0 {
		_, _ = fmt.Fprintln(w, "No events.")
		return
	}
	row(w, eventHead...)
	for _, event := range events {
		row(w, eventCells(event, now)...)
	}
}

// eventWidths are those of the columns of events that come one by one, when those that are still to come cannot be measured.
var eventWidths = []int{6, 8, 18, 12}

// EventHead writes the head of a table of events that come one by one.
func EventHead(w io.Writer) { fixed(w, eventWidths, eventHead) }

// table writes an event as a row of a table that goes on.
func (e Event) table(w io.Writer, now time.Time) { fixed(w, eventWidths, eventCells(e.Event, now)) }

// Metrics is the document of `reeve node metrics`.
type Metrics struct {
	NodeID string `json:"node_id"`
	// Text is in the text format of Prometheus (version 0.0.4).
	Text string `json:"text"`
}

func (m Metrics) table(w io.Writer, _ time.Time) {
	for line := range splitLines(m.Text) {
		_, _ = fmt.Fprintln(w, Clean(line))
	}
}
