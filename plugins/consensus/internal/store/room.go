package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/backend"
)

const (
	// DefaultRoomInterval is how often at most a full store is compacted and, where that helps, rewritten. A watcher that was away for longer than
	// this finds its history gone, as it would after five minutes in a store with room.
	DefaultRoomInterval = 30 * time.Second
	// DefaultPauseShare bounds the part of the time in which a store stands still because it is rewritten, whatever its roles write and delete: one part of
	// so many.
	DefaultPauseShare = 20
	// rewriteBefore is for how long no copy begins after one has kept the database from being rewritten: the keeper tries again within that, and so does a person.
	rewriteBefore = 4 * DefaultRoomInterval
	// roomBound is how long a compaction may take.
	roomBound = time.Minute
	// freedCommits is how often the database is committed at most after a compaction until what that has freed counts as free, and freedPause is the pause between two.
	freedCommits = 10
	freedPause   = 10 * time.Millisecond
)

// keeper makes room. It belongs to Run.
type keeper struct {
	interval  time.Duration
	share     int
	next      time.Time // not before then
	compacted int64     // the revision to which it has compacted
}

// rest puts off the next attempt, by more the longer the last one took.
func (k *keeper) rest(pause time.Duration) {
	k.next = time.Now().Add(max(k.interval, time.Duration(k.share)*pause))
}

// makeRoom gives back what is no longer needed, if the store is full: history is compacted, the database rewritten without its holes where that
// makes enough room, and etcd's alarm taken back once there is. Each member does so for itself. A store that is full of live data stays full.
func (s *Store) makeRoom(ctx context.Context) {
	status, _ := s.status.Get()
	if status.Room == RoomForAll || status.Corrupt || !status.Quorum() || time.Now().Before(s.keeper.next) {
		return
	}
	pause, err := s.tryRoom(ctx, s.worthRewriting)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("could not make room in the full store; trying again", "in", s.keeper.interval.String(), "error", err)
	}
	s.keeper.rest(pause)
	s.refresh(ctx)
}

// tryRoom returns how long the store stood still.
func (s *Store) tryRoom(ctx context.Context, worth func(size, inUse int64) bool) (pause time.Duration, err error) {
	server := s.etcd.Server
	compacted, err := s.compact(ctx, server.KV().Rev())
	if err != nil {
		return 0, fmt.Errorf("compact its history: %w", err)
	}
	commits := 1
	if compacted {
		commits = freedCommits
	}
	database := server.Backend()
	if size, gain := commitFreed(ctx, database, commits, worth); gain {
		pause, err = s.rewrite()
		if err != nil {
			return pause, err
		}
		s.log.Info("rewrote the store's database without its holes", "before", size, "after", database.Size(), "took", pause.String())
	}
	if !s.ownAlarm() || database.Size() >= s.space.calm() {
		return pause, nil
	}
	_, err = server.Alarm(Root(ctx), &pb.AlarmRequest{MemberID: uint64(server.MemberID()), Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		return pause, fmt.Errorf("take etcd's alarm back: %w", err)
	}
	s.log.Info("took back etcd's alarm that the store is full", "size", database.Size(), "quota", s.space.hard)
	return pause, nil
}

// commitFreed commits until it is worth it to rewrite the database, but not more often than commits says. It returns the size of the database, and whether it is worth it.
// bbolt counts what a compaction has freed as free from the first commit on at which no read is open that began before. etcd ends its own read beside each commit: on a busy
// machine after it.
func commitFreed(ctx context.Context, database backend.Backend, commits int, worth func(size, inUse int64) bool) (size int64, gain bool) {
	for n := range commits {
		database.ForceCommit()
		if size = database.Size(); worth(size, database.SizeInUse()) {
			return size, true
		}
		if n == commits-1 {
			break
		}
		select {
		case <-ctx.Done():
			return size, false
		case <-time.After(freedPause):
		}
	}
	return size, false
}

// ErrCopying says that the database is not rewritten now. That would wait for the end of the copy, and everybody for that.
var ErrCopying = errors.New("cannot rewrite the database while a snapshot of it is taken: try again when that is done")

// rewrite defragments the database. Nothing else moves meanwhile, which is not to be taken for a store that hangs.
func (s *Store) rewrite() (took time.Duration, err error) {
	if !s.copying.TryLock() {
		until := time.Now().Add(rewriteBefore)
		s.rewriteFirst.Store(&until)
		return 0, ErrCopying
	}
	defer s.copying.Unlock()
	defer s.rewriteFirst.Store(nil)
	s.pulse.rewriting.Store(true)
	defer s.pulse.rewriting.Store(false)
	s.hashing.Lock() // a hash gives way with its next page
	defer s.hashing.Unlock()
	began := time.Now()
	if err = s.etcd.Server.Defragment(); err != nil {
		err = fmt.Errorf("rewrite the database: %w", err)
	}
	return time.Since(began), err
}

// compact compacts the history up to a revision. It returns false if that was done before.
func (s *Store) compact(ctx context.Context, revision int64) (compacted bool, err error) {
	if revision == s.keeper.compacted {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(Root(ctx), roomBound)
	defer cancel()
	_, err = s.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return false, err
	}
	s.keeper.compacted = revision
	return true, nil
}

// worthRewriting reports whether the live data alone would leave room that lasts. To rewrite the database takes seconds, in which etcd answers nobody.
func (s *Store) worthRewriting(size, inUse int64) bool {
	for _, bound := range []int64{s.space.limit(), s.space.calm()} {
		if size >= bound && inUse < bound-s.space.slack() {
			return true
		}
	}
	return false
}

func (s *Store) ownAlarm() bool {
	own := uint64(s.etcd.Server.MemberID())
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm == pb.AlarmType_NOSPACE && alarm.MemberID == own {
			return true
		}
	}
	return false
}
