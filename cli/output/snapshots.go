package output

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// Snapshots is the document of `reeve store snapshot list`.
type Snapshots struct {
	// IntervalSeconds and Keep are the schedule; 0: there is none.
	IntervalSeconds int64  `json:"interval_seconds"`
	Keep            uint32 `json:"keep"`
	// Problem is why somebody has to look at them; empty: nobody has.
	Problem string `json:"problem"`
	// Snapshots are the good ones, the newest first.
	Snapshots []StoredSnapshot `json:"snapshots"`
	// Failures are of the nodes whose last one failed.
	Failures []SnapshotFailure `json:"failures"`
}

// StoredSnapshot is a good scheduled snapshot.
type StoredSnapshot struct {
	Name   string    `json:"name"`
	NodeID string    `json:"node_id"`
	Time   time.Time `json:"time"`
	// Revision is the store's, Size that of the file in bytes, and RehearsedKeys how many keys came out of it when it was restored.
	Revision      int64 `json:"revision"`
	Size          int64 `json:"size"`
	RehearsedKeys int64 `json:"rehearsed_keys"`
	// Place is where it is: "node", on the disk of its node.
	Place string `json:"place"`
	// Recipient is the public half of the recovery key to which it is sealed, and Signer the hash of the public key of the CA that signed it ("sha256:…"); empty: the node's curator is too old to say it.
	Recipient string `json:"recipient"`
	Signer    string `json:"signer"`
	// Unusable is why it does not bring the cluster of now back; empty: it does.
	Unusable string `json:"unusable"`
}

// SnapshotFailure is why the last scheduled snapshot of a node failed.
type SnapshotFailure struct {
	NodeID string    `json:"node_id"`
	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`
}

// NewSnapshots makes the document of what the cluster has listed.
func NewSnapshots(listed *clusterv1.ListSnapshotsResponse) Snapshots {
	document := Snapshots{
		IntervalSeconds: listed.GetSchedule().GetIntervalSeconds(), Keep: listed.GetSchedule().GetKeep(), Problem: listed.GetProblem(),
		Snapshots: []StoredSnapshot{}, Failures: []SnapshotFailure{},
	}
	numbers := make(map[string]uint64)
	for _, kept := range listed.GetNodes() {
		for _, one := range kept.GetSnapshots() {
			numbers[one.GetName()] = one.GetTask().GetNumber()
			document.Snapshots = append(document.Snapshots, StoredSnapshot{
				Name: one.GetName(), NodeID: kept.GetNodeId(), Time: one.GetTask().GetAsked().AsTime(), Revision: one.GetRevision(), Size: one.GetBytes(),
				RehearsedKeys: one.GetKeys(), Place: "node", Recipient: one.GetRecipient(), Signer: one.GetSigner(),
				Unusable: problem.OfSnapshot(one, listed.GetRecoveryRecipient(), listed.GetSigners()),
			})
		}
		if kept.GetFailure() != "" {
			document.Failures = append(document.Failures, SnapshotFailure{NodeID: kept.GetNodeId(), Time: kept.GetEnded().GetAsked().AsTime(), Reason: kept.GetFailure()})
		}
	}
	// By their numbers: clocks may have been wrong.
	slices.SortStableFunc(document.Snapshots, func(a, b StoredSnapshot) int { return int(int64(numbers[b.Name]) - int64(numbers[a.Name])) })
	return document
}

// ScheduledSnapshots is what a curator shows of the snapshots that are taken by schedule.
type ScheduledSnapshots struct {
	IntervalSeconds int64 `json:"interval_seconds"`
	// NewestTime is when the newest good one was asked for, and NewestRevision the store's revision in it; null and 0: there is none.
	NewestTime     *time.Time `json:"newest_time"`
	NewestRevision int64      `json:"newest_revision"`
}

// ClusterEndpoint is the name of the endpoint at which an instance serves the cluster API.
const ClusterEndpoint = "reeve.cluster.v1"

// newScheduledSnapshots reads what the curator among some instances publishes; nil: nothing.
func newScheduledSnapshots(instances []*clusterv1.InstanceStatus) *ScheduledSnapshots {
	for _, instance := range instances {
		values := instance.GetValues()
		interval, err := time.ParseDuration(values[snapshot.ValueInterval])
		serves := slices.ContainsFunc(instance.GetEndpoints(), func(endpoint *rolev1.Endpoint) bool { return endpoint.GetName() == ClusterEndpoint })
		if err != nil || !serves {
			continue
		}
		shown := &ScheduledSnapshots{IntervalSeconds: int64(interval / time.Second)}
		asked, errAsked := time.Parse(time.RFC3339, values[snapshot.ValueAsked])
		revision, errRevision := strconv.ParseInt(values[snapshot.ValueRevision], 10, 64)
		if errAsked == nil && errRevision == nil {
			shown.NewestTime, shown.NewestRevision = &asked, revision
		}
		return shown
	}
	return nil
}

// text is what there is to say in a line.
func (s ScheduledSnapshots) text(now time.Time) string {
	interval := time.Duration(s.IntervalSeconds) * time.Second
	if s.NewestTime == nil {
		return fmt.Sprintf("there is no good one yet; one is due every %s", interval)
	}
	return fmt.Sprintf("the newest good one was taken %s, at revision %d; one is due every %s", ago(s.NewestTime, now), s.NewestRevision, interval)
}

func (s Snapshots) table(w io.Writer, now time.Time) {
	if s.IntervalSeconds == 0 {
		_, _ = fmt.Fprintln(w, "No snapshots are taken by schedule (`reeve policy set snapshots=interval=6h,keep=7`).")
	} else {
		_, _ = fmt.Fprintf(w, "One is due every %s; each node keeps %d.\n", time.Duration(s.IntervalSeconds)*time.Second, s.Keep)
	}
	if s.Problem != "" {
		_, _ = fmt.Fprintf(w, "Problem: %s.\n", Clean(s.Problem))
	}
	if len(s.Snapshots) > 0 {
		row(w, "NAME", "NODE", "AGE", "REVISION", "SIZE", "REHEARSED", "PLACE", "UNUSABLE")
		for _, one := range s.Snapshots {
			row(w, one.Name, one.NodeID, ago(&one.Time, now), number(one.Revision), formatSize(one.Size), fmt.Sprintf("%d keys", one.RehearsedKeys), one.Place, one.Unusable)
		}
	}
	for _, failure := range s.Failures {
		_, _ = fmt.Fprintf(w, "The last one of node %s failed %s: %s.\n", Clean(failure.NodeID), ago(&failure.Time, now), Clean(failure.Reason))
	}
}
