package store

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"

	"github.com/reeveproject/reeve/sdk/event"
)

// Status is the state of the store as the local member sees it. It is never changed after it was published.
type Status struct {
	ClusterID string
	// MemberID is the local member's, LeaderID the leader's: 1 to 16 hexadecimal digits. LeaderID is empty if there is no leader.
	MemberID, LeaderID string
	// NoQuorum is when the store was first seen to have no leader, or not to answer a linearizable read; zero while it has a quorum.
	NoQuorum time.Time
	// Voter is whether the local member votes.
	Voter bool
	// DatabaseSize is how large the local member's database is on disk, InUse how much of it is not holes, and Quota how large it may become: bytes.
	DatabaseSize, InUse, Quota int64
	// LeaderChanges is how often a leader was elected, as far as the local member has seen it since its process started: the first one counts.
	LeaderChanges uint64
	// Room is who may still make it grow.
	Room Room
	// Corrupt is whether etcd found that the members' data differs, from when on it refuses everything.
	Corrupt bool
	// Damages are what the leader has found about members whose data differs from that of others.
	Damages []Damage
	// Silent are the nodes whose members nobody reaches of those that the local one hears, Cuts are between members of which somebody reaches both.
	Silent []string
	Cuts   []Cut
	// Unreachable is why the others do not reach the local member; empty: they do, or there are none.
	Unreachable string
	Generation  Generation
	// Members are sorted by ID.
	Members []Member
	// Users are those that are there and confined to their prefixes, each with a number that is new whenever it is made anew.
	Users map[string]uint64
}

// Member is a member of the store.
type Member struct {
	ID, Name string
	Learner  bool
}

// Quorum reports whether the store has a leader and makes progress.
func (s Status) Quorum() bool { return s.NoQuorum.IsZero() }

// Leading reports whether the local member is the leader.
func (s Status) Leading() bool { return s.LeaderID != "" && s.LeaderID == s.MemberID }

// statusInterval is how often etcd is asked for what it does not tell: size, progress, and users that another member changed. A round costs a few
// microseconds and no write.
const statusInterval = 2 * time.Second

// Status is the present state of the store. Open sets it; Run keeps it.
func (s *Store) Status() *event.Value[Status] { return &s.status }

// Run keeps the status until ctx is done, when it returns nil, or etcd ends by itself.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	// Ends with the removal, whatever is under way: a look at the quorum takes longer than etcd keeps its database open.
	reading, end := context.WithCancel(ctx)
	defer end()
	defer s.feel(reading)()
	defer s.attend(reading)()
	defer s.trimHistory(reading)()
	defer s.listen(reading)()
	removal, members, stop := s.awaitMembers(reading, end)
	defer stop()
	for {
		leaderChanged := s.etcd.Server.LeaderChangedNotify()
		s.refresh(reading)
		s.makeRoom(reading)
		select {
		case <-leaderChanged:
		case <-members:
		case <-s.space.refused:
		case request := <-s.recoveries:
			request.carryOut(s)
		case <-ticker.C:
		case <-removal:
			return ErrRemoved
		case <-s.etcd.Server.StopNotify():
			if s.etcd.Server.IsIDRemoved(uint64(s.etcd.Server.MemberID())) {
				return ErrRemoved
			}
			return errStopped
		case err := <-s.etcd.Err():
			return fmt.Errorf("etcd: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}

// membersInterval is how often it is looked whether the members have changed, of which etcd tells nobody, and the local one among them.
const membersInterval = 50 * time.Millisecond

// awaitMembers tells when the others say that the local member was removed, which they are asked while it may be cut off, and when the members have changed. Upon the
// removal it calls end first.
func (s *Store) awaitMembers(ctx context.Context, end func()) (removal, changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	told, news := make(chan struct{}), make(chan struct{}, 1)
	tell := sync.OnceFunc(func() {
		end()
		close(told)
	})
	var asking sync.WaitGroup
	asking.Go(func() {
		for s.pauseToAsk(ctx) {
			if s.isRemoved(ctx) {
				tell()
				return
			}
		}
	})
	// etcd closes its database a second after it has learned of the removal. Nobody may read by then.
	asking.Go(func() {
		ticker := time.NewTicker(membersInterval)
		defer ticker.Stop()
		last := s.members()
		for !s.Removed(uint64(s.etcd.Server.MemberID())) {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if now := s.members(); !slices.Equal(now, last) {
				last = now
				select {
				case news <- struct{}{}:
				default: // it is about to be looked
				}
			}
		}
		tell()
	})
	return told, news, func() {
		cancel()
		asking.Wait()
	}
}

// members are those of the store, sorted by ID.
func (s *Store) members() []Member {
	var all []Member
	for _, member := range s.etcd.Server.Cluster().Members() {
		all = append(all, Member{ID: member.ID.String(), Name: member.Name, Learner: member.IsLearner})
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// usersInterval is how often it is looked whether another member has changed the users, by the number of the last change: a withdrawn user loses its
// connections within that time on every member.
const usersInterval = 200 * time.Millisecond

// attend keeps the users and what they have, beside everything else, until the returned function is called.
func (s *Store) attend(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var attending sync.WaitGroup
	attending.Go(func() { _ = s.usage.Run(ctx) })
	attending.Go(func() {
		ticker := time.NewTicker(usersInterval)
		defer ticker.Stop()
		s.allocate()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				s.refreshUsers()
				s.allocate()
			}
		}
	})
	return func() {
		cancel()
		attending.Wait()
	}
}

// progressBound is how many election times a linearizable read may take.
const progressBound = 2

// refresh publishes the status, if it has changed.
func (s *Store) refresh(ctx context.Context) {
	s.refreshUsers()
	if err := s.refreshGeneration(); err != nil {
		s.log.Warn("cannot read which generation the store is; trying again", "error", err)
	}
	server := s.etcd.Server
	quorum := s.progresses(ctx)
	if ctx.Err() != nil {
		return
	}
	status := Status{
		ClusterID:     s.plan.ClusterID,
		MemberID:      s.MemberID(),
		LeaderID:      memberName(server.Leader()),
		Voter:         !s.Learner(),
		DatabaseSize:  server.Backend().Size(),
		InUse:         server.Backend().SizeInUse(),
		Quota:         s.space.quota,
		LeaderChanges: s.leaders.changes.Load(),
		Corrupt:       hasAlarm(server.Alarms(), pb.AlarmType_CORRUPT),
	}
	status.Unreachable = s.peering.said()
	if !quorum {
		s.Ask(ctx)
	}
	status.Silent, status.Cuts = s.links(quorum)
	status.Room = s.space.room(status.DatabaseSize, server.Alarms())
	status.Members, status.Damages = s.members(), s.damages()
	status.Generation = s.Generation()

	s.accounts.Lock() // so that nobody publishes users between the reading and the writing of them
	defer s.accounts.Unlock()
	status.Users = s.accounts.known
	before, _ := s.status.Get()
	switch {
	case quorum:
	case before.NoQuorum.IsZero():
		status.NoQuorum = time.Now()
	default:
		status.NoQuorum = before.NoQuorum
	}
	if !reflect.DeepEqual(before, status) {
		s.status.Set(status)
	}
}

func (s *Store) progresses(ctx context.Context) bool { return progresses(ctx, s.etcd.Server) }

func progresses(ctx context.Context, server *etcdserver.EtcdServer) bool {
	if server.Leader() == 0 {
		return false
	}
	config := server.Cfg
	election := time.Duration(config.ElectionTicks) * time.Duration(config.TickMs) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, progressBound*election)
	defer cancel()
	return server.LinearizableReadNotify(ctx) == nil
}
