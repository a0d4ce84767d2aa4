package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// version is the version of the files' format.
	version = "reeve.events.v1"
	// maxLine is the longest line that is taken for one, in bytes: an event at its largest, every byte of it escaped.
	maxLine = 128 << 10
	// maxSequence is a number that no event can have come to.
	maxSequence = 1 << 62
)

// mark is a line that is no event: the first one of a file. Earlier versions also wrote one when they ended.
type mark struct {
	Version string `json:"version"`
	// After is the highest number that was given when the line was written.
	After uint64 `json:"after,string"`
}

var markPrefix = []byte(`{"version":`)

// errLine says that a line is neither an event nor a mark.
var errLine = errors.New("events: not a line of the journal")

func (m mark) line() ([]byte, error) {
	line, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return append(line, '\n'), nil
}

// appendEvent appends the line of an event.
func appendEvent(to []byte, event *nodev1.Event) ([]byte, error) {
	encoded, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(event)
	if err != nil {
		return to, fmt.Errorf("events: %w", err)
	}
	// protojson varies its spaces on purpose; the file should not.
	line := bytes.NewBuffer(to)
	if err := json.Compact(line, encoded); err != nil {
		return to, fmt.Errorf("events: %w", err)
	}
	line.WriteByte('\n')
	return line.Bytes(), nil
}

// parseLine returns what a line without its end holds: one of an event and a mark.
func parseLine(line []byte) (*nodev1.Event, *mark, error) {
	if len(line) == 0 || len(line) > maxLine {
		return nil, nil, errLine
	}
	if bytes.HasPrefix(line, markPrefix) {
		var m mark
		if json.Unmarshal(line, &m) != nil || m.After >= maxSequence {
			return nil, nil, errLine
		}
		return nil, &m, nil
	}
	var event nodev1.Event
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(line, &event) != nil || event.GetSequence() == 0 || event.GetSequence() >= maxSequence {
		return nil, nil, errLine
	}
	// Whatever became of the file: a reader's terminal gets text.
	return bounded(&event), nil, nil
}
