package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

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
	// A compaction looks at so many revisions, in all that there are, and then lets others write for so long. What is written meanwhile must be less than that, whoever writes: roles on three nodes
	// write 50,000 of the smallest a second. Each time costs a commit, so that fewer at a time remove less than is written, and have others wait no less: with 400, of small values nine thousand a
	// second went on a busy machine, and next to nothing beside 3,000 large ones.
	compactionBatch = 5000
	compactionPause = 10 * time.Millisecond
	// trimInterval is how often it is looked whether there is history to compact.
	trimInterval = 100 * time.Millisecond
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

// trimHistory has the store forget the older part of its history whenever that has grown enough, until the returned function is called. The leader does it for all.
func (s *Store) trimHistory(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var trimming sync.WaitGroup
	trimming.Go(func() { compactOld(ctx, s.oldHistory, s.compactHistory, s.compacting) })
	return func() {
		cancel()
		trimming.Wait()
	}
}

// compactOld compacts what is old, until ctx is done. A compaction begins when the one before it has ended, and after as long again: etcd looks at all that is stored for each, and has them wait in line. A member
// that takes twice as long as the leader keeps up with it.
func compactOld(ctx context.Context, old func() int64, compact func(context.Context, int64) error, compacting func() bool) {
	ticker := time.NewTicker(trimInterval)
	defer ticker.Stop()
	trimmed := int64(0)
	var began, next time.Time // of the compaction that was begun last, and until when there is none after it
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		revision := old()
		if began.IsZero() && revision <= trimmed || compacting() {
			continue
		}
		now := time.Now()
		if !began.IsZero() {
			began, next = time.Time{}, now.Add(now.Sub(began))
		}
		if revision <= trimmed || now.Before(next) {
			continue
		}
		if err := compact(ctx, revision); err != nil {
			next = now.Add(statusInterval)
			continue
		}
		trimmed, began = revision, now
	}
}

// oldHistory is the revision before which history is old; 0: none is, or another member leads.
func (s *Store) oldHistory() int64 {
	if !s.Leads() {
		return 0
	}
	return s.usage.OldHistory()
}

// compactHistory begins a compaction.
func (s *Store) compactHistory(ctx context.Context, revision int64) error {
	bounded, cancel := context.WithTimeout(Root(ctx), roomBound)
	defer cancel()
	_, err := s.client.Compact(bounded, revision)
	switch {
	case err == nil, errors.Is(err, rpctypes.ErrCompacted):
		return nil
	case ctx.Err() == nil:
		s.log.Warn("the history of the store could not be compacted; trying again", "revision", revision, "error", err)
	}
	return err
}

// compacting reports whether a compaction is under way.
func (s *Store) compacting() bool {
	tx := s.etcd.Server.Backend().ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	scheduled, _ := mvcc.UnsafeReadScheduledCompact(tx)
	finished, _ := mvcc.UnsafeReadFinishedCompact(tx)
	return scheduled != finished
}
