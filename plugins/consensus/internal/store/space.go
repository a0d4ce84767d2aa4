package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/datadir"

	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// How much room there is. etcd refuses everybody, for good, once its database reaches its quota: the cluster API, too, by which an operator would do
// something about it. So all users but the cluster user are stopped earlier, and the rest is a reserve:
//
//	0 ─────────── users ───────────┬─ headroom ─┬─── reserve: the cluster user ───┐ quota
//	                             limit                                            etcd's alarm
const (
	// DefaultQuota is etcd's own: what it fits in memory and moves to another member without ado.
	DefaultQuota = int64(2 << 30)
	// MinQuota leaves the users some room beside the reserve; MaxQuota is the most that etcd recommends.
	MinQuota, MaxQuota = int64(16 << 20), storage.MaxQuotaBytes

	// maxReserve bounds the reserve, which is a quarter of the quota: the cluster API stores far less than that, but its history counts until it is
	// compacted.
	maxReserve = int64(256 << 20)
	// headroom is what must be free for any write of a user: somewhat more than the largest request. So a full store is full for all of them alike, and
	// large writes do not fail where small ones still succeed.
	headroom = int64(2 << 20)
	// rewritten is how many times its cost a write is reckoned to make the database grow until it is in its size: each commit writes anew the page to which it
	// adds, with the other values on it. What is forced to disk near the limit is known, and no longer reckoned so; more than twice would force every write,
	// each of which then leaves the holes of a commit of its own.
	rewritten = 2
)

// ErrFull is what a user is told whose write finds no room: etcd's own error for it, which its clients know.
var ErrFull = rpctypes.ErrGRPCNoSpace

// Room is who may still write what makes the store grow.
type Room int

const (
	// RoomForAll is the normal state.
	RoomForAll Room = iota
	// RoomForClusterUser is a store in which only the reserve is left.
	RoomForClusterUser
	// NoRoom is one in which etcd refuses everybody.
	NoRoom
)

// space keeps the users from the reserve.
type space struct {
	quota   int64         // as configured
	hard    int64         // etcd's: the quota, or more if the database was as large already
	refused chan struct{} // tells Run of a refusal; holds one
	costs   storage.Quota // what a request may add, by etcd's own reckoning; set when etcd runs

	mu sync.Mutex
	// What was let in but may not be in the size of the database yet: etcd counts what it has committed, and commits every 100 ms.
	underway, answered int64
}

// newSpace returns the space of a store. Where the database is larger than the quota, because the quota was made smaller or the reserve is used
// up, the cluster user gets a new reserve above it: otherwise the only way to a larger quota, a write of the cluster API, would be closed for good.
func newSpace(config Config) (*space, error) {
	quota := config.Quota
	if quota == 0 {
		quota = DefaultQuota
	}
	s := &space{quota: quota, hard: quota, refused: make(chan struct{}, 1)}
	info, err := os.Stat(datadir.ToBackendFileName(etcdDirectory(config.Directory)))
	switch {
	case err == nil && info.Size() > quota-s.reserve()/2:
		s.hard = info.Size() + s.reserve()
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("look at the size of the database: %w", err)
	}
	return s, nil
}

func (s *space) reserve() int64 { return min(s.quota/4, maxReserve) }

// limit is the size from which on no user may make the store grow.
func (s *space) limit() int64 { return s.quota - s.reserve() - headroom }

// calm is the size below which etcd's alarm may be taken back: clearly below its quota, so that it is not raised again at once.
func (s *space) calm() int64 { return s.hard - s.reserve()/2 }

// slack is how far below a bound the live data must be before the database is rewritten to get there: enough that it lasts a while.
func (s *space) slack() int64 { return s.reserve() / 4 }

func (s *space) room(size int64, alarms []*pb.AlarmMember) Room {
	switch {
	case hasAlarm(alarms, pb.AlarmType_NOSPACE):
		return NoRoom
	case size >= s.limit():
		return RoomForClusterUser
	}
	return RoomForAll
}

func hasAlarm(alarms []*pb.AlarmMember, kind pb.AlarmType) bool {
	return slices.ContainsFunc(alarms, func(alarm *pb.AlarmMember) bool { return alarm.Alarm == kind })
}

// Admit asks for room for a request of a user, before etcd sees it. It refuses with *usage.OverQuotaError what the user may not have, with *usage.PaceError what it writes too
// fast, and with ErrFull what does not fit. For room, what does not make the store grow, a delete above all, is always let in, and all that the cluster user asks for. The returned
// function is to be called when etcd has answered.
func (s *Store) Admit(ctx context.Context, user string, request any) (usage.Settle, error) {
	if user == s.plan.ClusterUser {
		return nothing, nil
	}
	settle, err := s.usage.Admit(ctx, user, request)
	if err != nil {
		return nil, err
	}
	cost := s.costOf(request)
	if cost > 0 && !s.admit(cost) {
		s.noteRefusal()
		settle(nil, ErrFull)
		return nil, ErrFull
	}
	return func(answer any, err error) {
		s.space.mu.Lock()
		s.space.underway -= cost
		s.space.answered += cost
		s.space.mu.Unlock()
		settle(answer, err)
	}, nil
}

// costOf is what a request may make the database grow by.
func (s *Store) costOf(request any) int64 {
	switch request.(type) {
	case *pb.PutRequest, *pb.TxnRequest, *pb.LeaseGrantRequest:
		return int64(s.space.costs.Cost(request))
	}
	return 0
}

func nothing(any, error) {}

func (s *Store) admit(cost int64) bool {
	backend := s.etcd.Server.Backend()
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	fits := func() bool {
		known := backend.Size() + rewritten*(s.space.underway+s.space.answered)
		return known < s.space.limit() && known+cost < s.space.limit()+headroom
	}
	if !fits() && s.space.answered > 0 {
		backend.ForceCommit() // and with it all that was answered is in the size
		s.space.answered = 0
	}
	if !fits() {
		return false
	}
	s.space.underway += cost
	return true
}

// noteRefusal has Run look at once, if it does not know yet that the store is full. Whoever is refused may try again without end.
func (s *Store) noteRefusal() {
	if status, _ := s.status.Get(); status.Room != RoomForAll || s.etcd.Server.Backend().Size() < s.space.limit() {
		return
	}
	select {
	case s.space.refused <- struct{}{}:
	default:
	}
}

// Problem says what keeps the store from its work, and what to do about it; empty: nothing.
func (s Status) Problem() string {
	switch {
	case s.LeaderID == "":
		return "no leader" + s.silence()
	case !s.Quorum():
		return "no quorum: the store has a leader but makes no progress" + s.silence()
	case s.Corrupt:
		return "etcd found that the data of its members differs and refuses everything: put the data of the broken member back from another one or a backup"
	case s.Distrusted() != "":
		return s.Distrusted()
	case s.Room == RoomForAll:
		return s.Unreachable
	}
	return fmt.Sprintf("%s; it recovers by itself when roles delete what they no longer need; `reeve store recover` tries at once and says whose data "+
		"it is; or raise quotaBytes in the configuration of this role", s.fullness())
}

// silence names the members that do not answer.
func (s Status) silence() string {
	if len(s.Silent) == 0 {
		return ""
	}
	if len(s.Silent) == 1 {
		return fmt.Sprintf(": of its %d members that of %s does not answer; start this node, or see that it is reached", len(s.Members), s.Silent[0])
	}
	return fmt.Sprintf(": of its %d members those of %s do not answer; start these nodes, or see that they are reached", len(s.Members), strings.Join(s.Silent, ", "))
}

// fullness says how full a full store is, and what that means.
func (s Status) fullness() string {
	refused := "only the cluster API can write, and everybody can delete"
	if s.Room == NoRoom {
		refused = "nobody can write, but everybody can delete"
	}
	return fmt.Sprintf("the store is full: %s of %s on disk, %s of it in use; %s", spell(s.DatabaseSize), spell(s.Quota), spell(s.InUse), refused)
}

// spell is a number of bytes as people read it.
func spell(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1<<9)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<19)>>20)
}
