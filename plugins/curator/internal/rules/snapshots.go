package rules

import (
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Bounds of a schedule of snapshots. A snapshot with its rehearsal takes minutes, and works on the store's own disk.
const (
	MinSnapshotInterval = 10 * time.Minute
	MaxSnapshotInterval = 31 * 24 * time.Hour
	MaxSnapshotsKept    = 100
)

// SnapshotSchedule checks when snapshots are to be taken; nil: only when somebody asks for one.
func SnapshotSchedule(field string, schedule *clusterv1.SnapshotSchedule) (problems Problems) {
	if schedule == nil {
		return nil
	}
	interval := time.Duration(schedule.GetIntervalSeconds()) * time.Second
	if seconds := schedule.GetIntervalSeconds(); seconds < int64(MinSnapshotInterval/time.Second) || seconds > int64(MaxSnapshotInterval/time.Second) {
		problems.add(field+".interval_seconds", "an interval of %d s is not between %s and %s", seconds, MinSnapshotInterval, MaxSnapshotInterval)
	} else if interval%time.Minute != 0 {
		problems.add(field+".interval_seconds", "an interval of %s is not one of whole minutes", interval)
	}
	if keep := schedule.GetKeep(); keep < 1 || keep > MaxSnapshotsKept {
		problems.add(field+".keep", "a node keeps 1 to %d snapshots, not %d", MaxSnapshotsKept, keep)
	}
	return problems
}
