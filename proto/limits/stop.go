package limits

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// How long a role may take to stop: StopGrace if its manifest says nothing (etcd hands its leadership over and closes its database in far less), and
// otherwise what it says, from MinStopGrace to MaxStopGrace, which people who stop a node still wait for.
const (
	StopGrace    = 10 * time.Second
	MinStopGrace = time.Second
	MaxStopGrace = 5 * time.Minute
)

// StopGraceOK reports whether a manifest may declare a stop_grace. Nil: it declares none.
func StopGraceOK(declared *durationpb.Duration) bool {
	return declared == nil || declared.IsValid() && declared.AsDuration() >= MinStopGrace && declared.AsDuration() <= MaxStopGrace
}

// StopGraceOf is how long a role may take to stop that declares a stop_grace, or none.
func StopGraceOf(declared *durationpb.Duration) time.Duration {
	if declared == nil {
		return StopGrace
	}
	return min(max(declared.AsDuration(), MinStopGrace), MaxStopGrace)
}
