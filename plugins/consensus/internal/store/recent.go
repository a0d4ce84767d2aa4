package store

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// recent keeps the part of the log that a member has in memory within its bytes. etcd bounds it by its entries, each of up to 1.5 MiB, and not at all while it sends the database to a
// member that is behind, nor for half a minute after that.
type recent struct {
	log  *raft.MemoryStorage
	most int64
	// seen is the last entry that is among the bytes, of which some may be gone by now.
	seen  uint64
	bytes int64
}

// recentLog finds the log of an etcd where it lies, since etcd has no place to bound it.
func recentLog(server *etcdserver.EtcdServer) (*raft.MemoryStorage, error) {
	field := reflect.ValueOf(server).Elem().FieldByName("r")
	if field.Kind() == reflect.Struct {
		field = field.FieldByName("raftStorage")
	}
	if !field.IsValid() || field.Type() != reflect.TypeFor[*raft.MemoryStorage]() || field.IsNil() {
		return nil, errors.New("this version of etcd does not keep where it did the log that is in memory")
	}
	return (*raft.MemoryStorage)(field.UnsafePointer()), nil
}

// recentInterval is how often it is looked how large the log in memory is.
const recentInterval = 100 * time.Millisecond

// boundRecent bounds the log in memory until the server has stopped.
func (s *Store) boundRecent() error {
	server := s.etcd.Server
	log, err := recentLog(server)
	if err != nil {
		return err
	}
	kept := &recent{log: log, most: s.space.recent()}
	s.following.Go(func() {
		ticker := time.NewTicker(recentInterval)
		defer ticker.Stop()
		for {
			select {
			case <-server.StopNotify():
				return
			case <-ticker.C:
				if err := kept.trim(server.AppliedIndex()); err != nil {
					s.log.Warn("the log in memory could not be bounded; trying again", "error", err)
				}
			}
		}
	})
	return nil
}

// trim lets go of the oldest entries when there are too many bytes of them. It does not count what was not applied yet, since that may still be replaced.
func (r *recent) trim(applied uint64) error {
	last, err := r.log.LastIndex()
	if err != nil {
		return err
	}
	applied = min(applied, last) // what is applied may not be in the log yet
	if applied == r.seen {
		return nil
	}
	added, err := r.until(applied, r.seen+1)
	if err != nil {
		return err
	}
	r.seen = applied
	for _, entry := range added {
		r.bytes += int64(len(entry.GetData()))
	}
	if r.bytes <= r.most {
		return nil
	}
	all, err := r.until(applied, 0)
	if err != nil {
		return err
	}
	r.bytes = 0
	for n := len(all) - 1; n >= 0; n-- {
		if r.bytes += int64(len(all[n].GetData())); r.bytes > r.most {
			return r.compact(all[n].GetIndex())
		}
	}
	return nil
}

// until returns the entries from one on, or those of them that are still there, up to one that is there.
func (r *recent) until(last, from uint64) ([]*raftpb.Entry, error) {
	first, err := r.log.FirstIndex()
	if first = max(first, from); err != nil || first > last {
		return nil, err
	}
	entries, err := r.log.Entries(first, last+1, math.MaxUint64)
	if errors.Is(err, raft.ErrCompacted) { // in this moment, by etcd; the next look counts the rest
		return nil, nil
	}
	return entries, err
}

// compact lets go of the entries up to one. A member that lacks them is sent the database, of which there must be a snapshot that is as new: etcd makes one each 100 entries.
func (r *recent) compact(index uint64) error {
	snapshot, err := r.log.Snapshot()
	if err != nil {
		return err
	}
	if err := r.log.Compact(min(index, snapshot.GetMetadata().GetIndex())); err != nil && !errors.Is(err, raft.ErrCompacted) {
		return fmt.Errorf("let go of the entries up to %d: %w", index, err)
	}
	return nil
}
