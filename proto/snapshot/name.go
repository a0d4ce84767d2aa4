package snapshot

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Suffix is how the file of a scheduled snapshot ends, after its name.
const Suffix = ".snapshot"

// A role that takes scheduled snapshots publishes these values while there is a schedule. Those of the newest good snapshot are absent while there is none.
const (
	// ValueInterval is how long after a good one the next is due, as time.Duration is written.
	ValueInterval = "snapshots/interval"
	// ValueAsked is when the newest good one was asked for, RFC 3339. ValueRevision is the store's revision in it.
	ValueAsked    = "snapshots/newest/asked"
	ValueRevision = "snapshots/newest/revision"
)

// timeForm is how a name has a time, in UTC.
const timeForm = "20060102T150405Z"

var nameForm = regexp.MustCompile(`^([0-9]{8}T[0-9]{6}Z)-([1-9][0-9]{0,18})$`)

// Name is the name of a scheduled snapshot. Of two, the one with the higher number is the newer one: clocks may be wrong.
type Name struct {
	// Asked is when the cluster asked for it, in whole seconds.
	Asked time.Time
	// Number is that of its task.
	Number uint64
}

// String is such as "20261128T180000Z-1".
func (n Name) String() string { return fmt.Sprintf("%s-%d", n.Asked.UTC().Format(timeForm), n.Number) }

// ParseName reads a name, without the suffix of its file; false: it is none.
func ParseName(text string) (Name, bool) {
	parts := nameForm.FindStringSubmatch(text)
	if parts == nil {
		return Name{}, false
	}
	asked, err := time.Parse(timeForm, parts[1])
	number, errNumber := strconv.ParseUint(parts[2], 10, 64)
	return Name{Asked: asked, Number: number}, err == nil && errNumber == nil
}
