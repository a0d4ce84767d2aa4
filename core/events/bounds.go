package events

import (
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// What an event may have at most, in bytes. Longer texts are cut.
const (
	maxType     = 64
	maxMessage  = 1024
	maxRole     = limits.Name
	maxInstance = 256
	// maxDetails is how many details there are, maxDetail how long the value of one is, and maxAllDetails how long they are together: the last
	// lines that a role wrote fit.
	maxDetails    = 32
	maxDetail     = limits.Value
	maxAllDetails = 16 << 10
	// leftOut is the detail that says how many others were left out.
	leftOut = "details_left_out"
)

// bounded returns an own copy of what may be kept of an event: every text is one line, and none is too long.
func bounded(e *nodev1.Event) *nodev1.Event {
	kept := &nodev1.Event{
		Sequence:   e.GetSequence(),
		Severity:   e.GetSeverity(),
		Type:       text(e.GetType(), maxType),
		Message:    text(e.GetMessage(), maxMessage),
		Role:       text(e.GetRole(), maxRole),
		InstanceId: text(e.GetInstanceId(), maxInstance),
		Details:    details(e.GetDetails()),
	}
	if kept.Severity == nodev1.Severity_SEVERITY_UNSPECIFIED {
		kept.Severity = nodev1.Severity_SEVERITY_INFO
	}
	if e.GetTime().IsValid() {
		kept.Time = &timestamppb.Timestamp{Seconds: e.GetTime().GetSeconds(), Nanos: e.GetTime().GetNanos()}
	}
	return kept
}

// details keeps those that come first by name where there are too many.
func details(given map[string]string) map[string]string {
	if len(given) == 0 {
		return nil
	}
	kept := make(map[string]string, min(len(given), maxDetails+1))
	size, out := 0, 0
	for _, name := range slices.Sorted(maps.Keys(given)) {
		key, value := text(name, limits.Name), text(given[name], maxDetail)
		if len(kept) == maxDetails || size+len(key)+len(value) > maxAllDetails {
			out++
			continue
		}
		size += len(key) + len(value)
		kept[key] = value
	}
	if out > 0 {
		kept[leftOut] = strconv.Itoa(out)
	}
	return kept
}

// text is one line of at most size bytes. It is cut before it is cleaned, too: what is given may be of any length.
func text(given string, size int) string {
	return limits.Cut(limits.Clean(limits.Cut(given, size)), size)
}
