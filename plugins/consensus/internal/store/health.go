package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// DefaultPulseInterval is how often it is tried whether the store still moves: a read in memory, and two messages within the process.
	DefaultPulseInterval = time.Second
	// stallBeats is after how many times without success the store hangs: longer than an election or a stop of the machine for a snapshot. Whoever
	// acts upon it waits on top of that.
	stallBeats = 10
)

// pulse is whether the store still moves.
type pulse struct {
	interval time.Duration
	// missed counts the beats since the store was last seen to move. Beats are counted rather than time, so that time in which the process itself was
	// stopped does not count.
	missed atomic.Int64
	// rewriting says that everything stands still on purpose.
	rewriting atomic.Bool

	// applying belongs to whoever tries.
	applying applying
}

// applying is how far what the members have agreed upon was applied at the last beat.
type applying struct{ committed, applied uint64 }

// stands takes note of how far it is now, and reports whether nothing was applied since the last beat although there was something to apply.
func (a *applying) stands(committed, applied uint64) bool {
	stands := a.committed > a.applied && a.applied == applied
	a.committed, a.applied = committed, applied
	return stands
}

// feel tries with every beat whether the store moves, until the returned function is called, which waits for the last try to end.
func (s *Store) feel(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	beats := make(chan struct{}, 1)
	var trying sync.WaitGroup
	trying.Go(func() {
		for range beats {
			if s.moves(ctx) == nil {
				s.pulse.missed.Store(0)
			}
		}
	})
	trying.Go(func() {
		defer close(beats)
		ticker := time.NewTicker(s.pulse.interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				s.pulse.missed.Add(1)
				select {
				case beats <- struct{}{}:
				default: // the last try has not ended
				}
			}
		}
	})
	return func() {
		cancel()
		trying.Wait()
	}
}

// errStands says that something was agreed upon a beat ago and is still not in the database.
var errStands = errors.New("what the members have agreed upon is not applied")

// moves fails, or does not return, if a part of etcd stands still: a read goes through its database; what was agreed upon must be applied; and raft has to
// answer where it needs no other member for that. Without a quorum all of this still works: that the others are away is nothing that a new process would
// mend.
func (s *Store) moves(ctx context.Context) error {
	server := s.etcd.Server
	if s.closing() {
		return nil
	}
	if _, err := server.Range(Root(ctx), &pb.RangeRequest{Key: []byte("/"), Serializable: true}); err != nil {
		return err
	}
	if s.pulse.applying.stands(server.CommittedIndex(), server.AppliedIndex()) {
		return errStands
	}
	for _, member := range server.Cluster().Members() {
		if !member.IsLearner && member.ID != server.MemberID() {
			return nil // it may be that one that does not answer
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stallBeats*s.pulse.interval)
	defer cancel()
	return server.LinearizableReadNotify(ctx)
}

// CheckHealth fails if the store hangs in a way that a new process may mend. A disk that does not answer is none: the store would hang again, after it had
// read all of its data from the same disk. Neither is a store without a quorum, nor one whose database is being rewritten.
func (s *Store) CheckHealth() error {
	missed := s.pulse.missed.Load()
	if missed <= stallBeats || s.pulse.rewriting.Load() || waitsForDisk() {
		return nil
	}
	return fmt.Errorf("the store has not moved for %s, and does not wait for its disk", time.Duration(missed)*s.pulse.interval)
}

// waitsForDisk reports whether a thread of this process sleeps in the kernel such that nothing can wake it before a device has answered (state D of
// proc_pid_stat(5)). Looking there asks nothing of the disk.
func waitsForDisk() bool {
	threads, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		return false
	}
	for _, thread := range threads {
		content, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		if _, state, ok := bytes.Cut(content[bytes.LastIndexByte(content, ')')+1:], []byte(" ")); ok && len(state) > 0 && state[0] == 'D' {
			return true
		}
	}
	return false
}
