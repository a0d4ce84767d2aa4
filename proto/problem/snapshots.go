package problem

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// OfSnapshot says why a good snapshot does not bring the cluster of now back; empty: it does. recipient is the public half of the recovery key of now, and signers are the keys of the CAs that the cluster
// trusts. What is empty on either side is not known, and nothing is wrong with it: an older curator does not say it.
func OfSnapshot(one *clusterv1.StoredSnapshot, recipient string, signers []string) string {
	switch {
	case recipient != "" && one.GetRecipient() != "" && one.GetRecipient() != recipient:
		return "sealed to another recovery key"
	case len(signers) > 0 && one.GetSigner() != "" && !slices.Contains(signers, one.GetSigner()):
		return "signed by a CA that was retired"
	}
	return ""
}

// OfSnapshots says what is wrong with the scheduled snapshots of a cluster; empty: nothing is. since is when the schedule was set, good when the newest good one was asked for; nil: it is not
// known, there is none. failure is why the last one was not good; empty: it was, or there was none.
func OfSnapshots(interval time.Duration, since, good *timestamppb.Timestamp, now time.Time, failure string) (problem string) {
	age := now.Sub(good.AsTime())
	switch {
	case good == nil && failure == "" && (since == nil || now.Sub(since.AsTime()) <= 2*interval):
		return ""
	case good == nil:
		problem = "there is no good snapshot of the consensus store"
	case age > 2*interval:
		problem = fmt.Sprintf("the newest good snapshot of the consensus store is of %s, longer ago than twice the interval of %s", good.AsTime().Format(time.RFC3339), interval)
	case age >= -2*interval:
		return ""
	default:
		problem = fmt.Sprintf("the newest good snapshot of the consensus store is of %s by the clock of the node that asked for it, which is in the future: compare the clocks of the nodes", good.AsTime().Format(time.RFC3339))
	}
	if failure != "" {
		problem += ": " + failure
	}
	return problem
}
