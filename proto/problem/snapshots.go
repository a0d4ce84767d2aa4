package problem

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// OfSnapshots says what is wrong with the scheduled snapshots of a cluster; empty: nothing is. since is when the schedule was set, good when the newest good one was asked for; nil: it is not
// known, there is none. failure is why the last one was not good; empty: it was, or there was none.
func OfSnapshots(interval time.Duration, since, good *timestamppb.Timestamp, now time.Time, failure string) (problem string) {
	switch {
	case good == nil && failure == "" && (since == nil || now.Sub(since.AsTime()) <= 2*interval):
		return ""
	case good == nil:
		problem = "there is no good snapshot of the consensus store yet"
	case now.Sub(good.AsTime()) <= 2*interval:
		return ""
	default:
		problem = fmt.Sprintf("the newest good snapshot of the consensus store is of %s, longer ago than twice the interval of %s", good.AsTime().Format(time.RFC3339), interval)
	}
	if failure != "" {
		problem += ": " + failure
	}
	return problem
}
