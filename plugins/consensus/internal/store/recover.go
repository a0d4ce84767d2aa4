package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// Recovered is what an attempt to make room has done.
type Recovered struct {
	// Before and After are the size on disk of the local member's database, in bytes.
	Before, After int64
}

// NoRoomError says that a store is full of data that nobody has deleted.
type NoRoomError struct {
	Status Status
	// Usage is who has how much in it, the most first.
	Usage []Usage
}

// Usage is what is stored of one ConsensusUser, or, under the empty name, of nobody in particular.
type Usage struct {
	User string
	// Bytes is what the keys and values have, Keys how many there are: deleted and former ones too, as far as they are kept.
	Bytes int64
	Keys  int
}

// shownUsers is how many users are named in an error: those that matter.
const shownUsers = 5

func (e *NoRoomError) Error() string {
	var users []string
	for _, usage := range e.Usage[:min(len(e.Usage), shownUsers)] {
		who := "user " + usage.User
		if usage.User == "" {
			who = "the store itself"
		}
		users = append(users, fmt.Sprintf("%s has %s (keys: %d)", who, spell(usage.Bytes), usage.Keys))
	}
	if more := len(e.Usage) - shownUsers; more > 0 {
		users = append(users, fmt.Sprintf("%d others have less", more))
	}
	return fmt.Sprintf("%s; its history was compacted and its database rewritten, and all that is left is data: %s; have roles delete what they no longer "+
		"need, from which it recovers by itself, or raise quotaBytes in the configuration of this role", e.Status.fullness(), strings.Join(users, ", "))
}

// ErrNoQuorum says that room cannot be made while the store has no quorum.
var ErrNoQuorum = errors.New("the store has no quorum, without which its history cannot be compacted; start the other members, or wait for them")

// ErrCorrupt says that room cannot be made in a store whose members have different data.
var ErrCorrupt = errors.New("the store is broken")

// recovery is a call of Recover. Run carries it out, between what it does by itself.
type recovery struct {
	ctx    context.Context
	done   chan struct{}
	result Recovered
	err    error
}

// Recover makes room now, whether the store is full or not: it compacts the history up to the present, rewrites the local member's database without its
// holes, for which the store stands still, and takes etcd's alarm back. It fails with *NoRoomError if the store is full all the same, ErrNoQuorum
// or ErrCorrupt. Run has to run.
func (s *Store) Recover(ctx context.Context) (Recovered, error) {
	request := &recovery{ctx: ctx, done: make(chan struct{})}
	select {
	case s.recoveries <- request:
	case <-s.etcd.Server.StopNotify():
		return Recovered{}, errStopped
	case <-ctx.Done():
		return Recovered{}, ctx.Err()
	}
	<-request.done // Run has taken it and looks at ctx itself
	return request.result, request.err
}

func (r *recovery) carryOut(s *Store) {
	defer close(r.done)
	s.etcd.Server.Backend().ForceCommit() // what was written a moment ago counts
	r.result.Before = s.etcd.Server.Backend().Size()
	s.refresh(r.ctx)
	status, _ := s.status.Get()
	switch {
	case r.ctx.Err() != nil:
		r.err = r.ctx.Err()
		return
	case !status.Quorum():
		r.err = ErrNoQuorum
		return
	case status.Corrupt:
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, status.Problem())
		return
	}
	pause, err := s.tryRoom(r.ctx, func(size, inUse int64) bool { return inUse < size })
	s.keeper.rest(pause)
	if r.err = err; err != nil {
		return
	}
	s.refresh(r.ctx)
	r.result.After = s.etcd.Server.Backend().Size()
	status, _ = s.status.Get()
	if status.Room == RoomForAll {
		return
	}
	usage, err := s.contents()
	if err != nil {
		r.err = fmt.Errorf("look whose data the store is full of: %w", err)
		return
	}
	r.err = &NoRoomError{Status: status, Usage: usage}
}

// contents adds up what the database holds, by user, the most first. It reads all of the database.
func (s *Store) contents() ([]Usage, error) {
	// This way of reading holds nobody up.
	tx := s.etcd.Server.Backend().ConcurrentReadTx()
	tx.RLock()
	defer tx.RUnlock()
	users := make(map[string]*Usage)
	err := tx.UnsafeForEach(schema.Key, func(revision, record []byte) error {
		user := string(usage.UserOf(keyOf(record)))
		if users[user] == nil {
			users[user] = &Usage{User: user}
		}
		users[user].Bytes += int64(len(revision) + len(record))
		users[user].Keys++
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]Usage, 0, len(users))
	for _, usage := range users {
		all = append(all, *usage)
	}
	slices.SortFunc(all, func(a, b Usage) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.User, b.User)) })
	return all, nil
}

// keyField is the number of the key in etcd's mvccpb.KeyValue.
const keyField = 1

// keyOf returns the key of a record without decoding its value, which may be large.
func keyOf(record []byte) []byte {
	for len(record) > 0 {
		number, kind, size := protowire.ConsumeTag(record)
		if size < 0 {
			return nil
		}
		record = record[size:]
		if number == keyField && kind == protowire.BytesType {
			key, _ := protowire.ConsumeBytes(record)
			return key
		}
		if size = protowire.ConsumeFieldValue(number, kind, record); size < 0 {
			return nil
		}
		record = record[size:]
	}
	return nil
}
