package store

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

const (
	// compactAfter is for how long history is kept where little is written: what was deleted is to be gone some time. Where more is written, its bytes bound it.
	compactAfter = 5 * time.Minute

	// History may have one part of so many of the quota. Between half of that and all of it is kept: with the pace of one user for 16 s or more, which is longer
	// than a watcher is away for a restart. etcd reads into memory what a watcher has missed.
	historyShare           = 16
	minHistory, maxHistory = int64(1 << 20), int64(128 << 20)

	// A user may write one part of so many of the quota a second, and paceAtOnce times that at once.
	paceShare        = 512
	minPace, maxPace = int64(1 << 20), int64(4 << 20)
	paceAtOnce       = 16

	// snapshotCount is after how many entries of its log etcd makes a snapshot, and keeps none of the older ones on the disk. Entries of 1.5 MiB, the largest, make 3 GiB of log
	// until then, beside logFiles of 64 MiB that are kept anyway; Kubernetes writes 20 MiB. It is not less because etcd ends when a snapshot finds the disk full, and it needs no
	// other room: its database and its log have theirs beforehand.
	snapshotCount = 2000
	logFiles      = 2
	// snapshotCatchUp is how many entries beside the last 100 a member keeps in memory, for members that are behind: a second of one user's smallest writes. Of their
	// bytes there are as many as one part of so many of the quota; 512 MiB are an eighth of what the role may have, and a minute at the pace of two users. Who is further behind gets
	// the whole database.
	snapshotCatchUp = 20_000
	recentShare     = 4
	maxRecent       = int64(512 << 20)
	// A compaction looks at so many revisions, and then lets others write for so long. That is 20,000 a second, about as many as a user may write of the smallest; with 100 it was 4,700. Others
	// wait no longer for it, since of large revisions there is less history than that.
	compactionBatch = 400
	compactionPause = 10 * time.Millisecond
)

// pace is how fast each user may write: 4 MiB a second with a store of 2 GiB, after 64 MiB at once. The API servers of Kubernetes with 100 nodes write about 1 MiB a second, and 3 MiB
// while all pods are made anew.
func (s *space) pace() usage.Pace {
	perSecond := min(max(s.quota/paceShare, minPace), maxPace)
	return usage.Pace{PerSecond: perSecond, AtOnce: paceAtOnce * perSecond}
}

// history is how many bytes of history there may be.
func (s *space) history() int64 { return min(max(s.quota/historyShare, minHistory), maxHistory) }

// recent is how many bytes of the log a member keeps in memory.
func (s *space) recent() int64 { return min(s.quota/recentShare, maxRecent) }

// trimHistory has the store forget the older part of its history, when that has grown enough. The leader does it for all.
func (s *Store) trimHistory(ctx context.Context) {
	old := s.usage.OldHistory()
	if old <= s.trimmed || !s.Leads() {
		return
	}
	ctx, cancel := context.WithTimeout(Root(ctx), roomBound)
	defer cancel()
	if _, err := s.client.Compact(ctx, old); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		s.log.Warn("the history of the store could not be compacted; trying again", "revision", old, "error", err)
		return
	}
	s.trimmed = old
}
