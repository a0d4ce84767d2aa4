package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage"

	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/checkpoint"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is where and how the local member runs.
type Config struct {
	Log hclog.Logger
	// Directory is the data directory: absolute, private, there already.
	Directory string
	// RuntimeDirectory is private to this instance and there already. The socket for etcd's peers is made below it, so its path should
	// have at most 90 bytes.
	RuntimeDirectory string
	// Heartbeat and Election are raft's: how often a leader shows itself, and after how long without it the others elect a new one.
	// Zero: 100 ms and 1 s, etcd's own defaults, which fit machines in one place.
	Heartbeat, Election time.Duration
	// Handover is how long a leader that is about to stop may take to hand the leadership over. Zero: two elections, and at most 5 s.
	Handover time.Duration
	// Quota is how many bytes the database may have on disk, the reserve for the cluster user among them: MinQuota to MaxQuota. Zero:
	// DefaultQuota.
	Quota int64
	// RoomInterval is DefaultRoomInterval if it is zero.
	RoomInterval time.Duration
	// PauseShare is DefaultPauseShare if it is zero.
	PauseShare int
	// PulseInterval is DefaultPulseInterval if it is zero.
	PulseInterval time.Duration
	// Place is where the member listens for the others as soon as there are any. Nil: there never are any.
	Place *event.Value[Place]
	// Elsewhere returns the machines, by address or DNS name, where other members are looked for that do not answer at the address that is known of them; nil: nowhere.
	Elsewhere func() []string
	// Join asks the members of the cluster's store for a place in it. It fails with ErrRemoved if the store has removed the member that asks, with
	// ErrElsewhere if it has another one of this node, and with ErrUnwanted if this node is to have none.
	Join func(context.Context, *consensusv1.JoinRequest) (*consensusv1.JoinResponse, error)
	// Follows returns the generation of the store that the node follows; false: it is not known. Nil: it never is.
	Follows func() (Generation, bool)
	// Version is that of the role, for the manifests of snapshots.
	Version string
	// Began is told of the member as soon as etcd runs, which may be long before the store serves; nil: nobody is.
	Began func(*Local)
	// Damage is what an earlier call of Open in this process has found; nil: it is looked.
	Damage *DamagedError
	// Waiting is told what a member waits for that takes long to serve; nil: nobody is.
	Waiting func(reason string)
}

// Plan is which store to run.
type Plan struct {
	ClusterID, NodeID string
	// ClusterUser is the user that is there before anybody else uses the store.
	ClusterUser string
	// New allows to make the store if it was never completed. Otherwise it must be there.
	New bool
	// Join allows to join the store that the cluster has, if the member is not in it yet.
	Join bool
	// Restored allows to make the store of the snapshot that was received, if it was never completed.
	Restored bool
}

// Store is the local member, running.
type Store struct {
	log    hclog.Logger
	plan   Plan
	etcd   *embed.Etcd
	client *clientv3.Client
	lock   *os.File
	// directory is the role's.
	directory string
	config    Config
	marker    *marker
	peering   *peering
	halted    bool
	stopped   chan struct{} // closed when etcd has stopped; nil: it was not told to
	damage    *DamagedError // nil: none was found
	finished  atomic.Bool   // the marker's phase is complete
	// generation is that of the data, as it was read last.
	generation atomic.Pointer[Generation]
	others     acquaintances
	reach      reach

	status     event.Value[Status]
	space      *space
	keeper     keeper
	recoveries chan *recovery
	pulse      pulse
	leaders    leaders
	following  sync.WaitGroup // of etcd, until it stops
	usage      *usage.Counter
	// snapshot is since when there is a snapshot; nil: there is none. copying is held while the database is copied, or rewritten.
	snapshot atomic.Pointer[time.Time]
	copying  sync.Mutex
	// hashing is held for reading while what the member holds is hashed, and for writing while the database is rewritten.
	hashing sync.RWMutex
	// betweenPages is called while a hash is under way; nil: nothing is. For tests.
	betweenPages func()
	// rewriteFirst is until when no copy begins, since one has kept the database from being rewritten; nil: any may.
	rewriteFirst atomic.Pointer[time.Time]
	freeSpace    func(directory string) (free, all int64, err error)
	allocated    allocation // of attend's goroutine

	accounts struct {
		sync.Mutex
		revision uint64 // of etcd's authorization, that known reflects
		numbered int64  // the revision of the store that numbers reflects
		known    map[string]uint64
		last     uint64 // the largest number in known so far
		numbers  atomic.Pointer[map[string]uint32]
	}
}

// Open starts the local member, making it first if it is new, and returns when it serves, with authorization on and the cluster user there. It
// fails with a *Problem if what is on disk does not fit the plan, and with a *BrokenError if etcd gave up in a way that leaves the process
// of no further use.
func Open(ctx context.Context, config Config, plan Plan) (*Store, error) {
	locked, err := lock(config.Directory)
	if err != nil {
		return nil, err
	}
	found, err := prepare(config.Directory, plan)
	if err == nil {
		err = errors.Join(removeSpool(config.Directory), rehearsal.Remove(rehearsalDirectory(config.Directory)))
	}
	if err != nil {
		locked.Close()
		return nil, err
	}
	s := &Store{
		log: config.Log, plan: plan, lock: locked, directory: config.Directory, config: config, marker: found, recoveries: make(chan *recovery), freeSpace: freeSpace,
	}
	if s.damage = config.Damage; s.damage == nil {
		if _, err := Inspect(ctx, config.Directory, plan.NodeID); err != nil && !errors.As(err, &s.damage) {
			locked.Close()
			return nil, err
		}
	}
	for {
		err := s.honour(ctx)
		if err == nil {
			err = s.start(ctx)
		}
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, errAgain) && s.halt():
			s = s.next()
		case s.wasRemoved(err) && s.halt():
			member := s.marker.MemberID
			again, failed := s.replace()
			if again {
				s = s.next()
				continue
			}
			s.lock.Close()
			if failed == nil {
				failed = fmt.Errorf("%w: member %s was removed from it, and a new one of this node is to join", ErrWaiting, member)
			}
			return nil, failed
		default:
			return nil, s.end(err)
		}
	}
}

// next is the Store of the next start in this process. What others still ask of a member that stops, they ask of the Store that it was.
func (s *Store) next() *Store {
	next := &Store{
		log: s.log, plan: s.plan, lock: s.lock, directory: s.directory, config: s.config, marker: s.marker, recoveries: s.recoveries, freeSpace: s.freeSpace, damage: s.damage,
	}
	next.others.set(s.others.get())
	return next
}

func (s *Store) start(ctx context.Context) (err error) {
	config, found := s.config, s.marker
	s.client, s.etcd, s.halted, s.stopped = nil, nil, false, nil
	s.finished.Store(found.Phase == complete)
	if s.space, err = newSpace(config); err != nil {
		return err
	}
	if s.keeper.interval = config.RoomInterval; s.keeper.interval == 0 {
		s.keeper.interval = DefaultRoomInterval
	}
	if s.keeper.share = config.PauseShare; s.keeper.share == 0 {
		s.keeper.share = DefaultPauseShare
	}
	if s.pulse.interval = config.PulseInterval; s.pulse.interval == 0 {
		s.pulse.interval = DefaultPulseInterval
	}
	s.peering = newPeering(s)
	if err := s.checkRejoin(); err != nil {
		return err
	}
	if s.damage != nil {
		if s.asksRemoved(ctx) {
			return ErrRemoved
		}
		return s.damage
	}
	how, authority, err := s.begin(ctx)
	if err != nil {
		return err
	}
	settings, err := settings(config, s.plan, how)
	if err != nil {
		return err
	}
	settings.QuotaBackendBytes = s.space.hard
	trimLog(s.log, settings.Dir)
	if s.etcd, err = startEtcd(settings); err != nil {
		if how.join != nil {
			return fmt.Errorf("%w: take the store over from %s: %w", ErrWaiting, how.join.cluster, err)
		}
		return fmt.Errorf("start etcd in %s: %w", settings.Dir, err)
	}
	if err := guard(func() error { return divert(s.etcd.Server, s.peering.outgoing) }); err != nil {
		return fmt.Errorf("have etcd reach the other members safely: %w", err)
	}
	s.following.Go(func() { s.leaders.follow(s.etcd.Server) })
	if err := s.boundRecent(); err != nil {
		return fmt.Errorf("bound what etcd keeps of its log in memory: %w", err)
	}
	s.space.costs = storage.NewBackendQuota(s.etcd.Server.Logger(), s.space.hard, s.etcd.Server.Backend(), "reserve")
	s.client = v3client.New(s.etcd.Server)
	member := s.etcd.Server.MemberID().String()
	if found.Phase != forming && found.MemberID != member {
		return foreign("the files in %s are those of member %s, but the store's member is %s; %s", settings.Dir, member, found.MemberID, wayOutOfForeign)
	}
	if err := s.refreshGeneration(); err != nil {
		return err
	}
	if config.Began != nil {
		config.Began(&Local{plan: s.plan, server: s.etcd.Server, generation: s.Generation()})
	}
	if err := s.come(ctx, authority); err != nil {
		return err
	}
	s.refreshUsers()
	if s.usage, err = usage.Open(ctx, usage.Config{
		Log:         s.log.Named("usage"),
		KV:          s.etcd.Server.Watchable(),
		ClusterUser: s.plan.ClusterUser,
		Numbers:     s.Numbers,
		Leases:      s.listLeases,
		Pace:        s.space.pace(),
		History:     s.space.history(),
		LateBound:   2 * s.etcd.Server.Cfg.ReqTimeout(),
	}); err != nil {
		return fmt.Errorf("count what the users have stored: %w", err)
	}
	if found.Phase != complete {
		if s.marker, err = finish(config.Directory, found, member); err != nil {
			return err
		}
		s.finished.Store(true)
	}
	// The marker says it, too, for a member that asks the others and cannot read its data.
	if err := s.joined(s.Generation()); err != nil {
		return err
	}
	if err := removeReceived(config.Directory); err != nil {
		return err
	}
	if err := s.fulfil(); err != nil {
		return err
	}
	s.refresh(ctx)
	return nil
}

// BrokenError says that etcd gave up while it started. What it had opened stays open, so the process should end.
type BrokenError struct{ Cause string }

func (e *BrokenError) Error() string { return "etcd gave up: " + e.Cause }

// guard turns the panics with which etcd answers to what it cannot use into errors.
func guard(use func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &BrokenError{Cause: fmt.Sprint(cause)}
		}
	}()
	return use()
}

func startEtcd(settings *embed.Config) (running *embed.Etcd, err error) {
	err = guard(func() (err error) {
		checkpoint.Before(steps.StartEtcd)
		if running, err = embed.StartEtcd(settings); err == nil {
			checkpoint.After(steps.StartEtcd)
		}
		return err
	})
	return running, err
}

// askInterval is how often a member that may be cut off asks the others whether it is still one of them: who was away when it was removed is not let in to be told.
const askInterval = 3 * time.Second

func (s *Store) awaitReady(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case <-s.etcd.Server.StopNotify():
		return errStopped
	case err := <-s.etcd.Err():
		return fmt.Errorf("etcd ended while it started: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errStopped says that etcd ended by itself, as it does when the member was removed.
var errStopped = errors.New("etcd stopped by itself; the log before this says why")

// versionInterval is how often a new store is asked whether its members have agreed upon a version, without which it refuses its clients. It takes one
// commit after the election; etcd tells nobody.
const versionInterval = 5 * time.Millisecond

func (s *Store) awaitVersion(ctx context.Context) error {
	ticker := time.NewTicker(versionInterval)
	defer ticker.Stop()
	for s.etcd.Server.ClusterVersion() == nil || !api.IsCapabilityEnabled(api.V3rpcCapability) {
		select {
		case <-ticker.C:
		case <-s.etcd.Server.StopNotify():
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Server is etcd itself, for serving its API.
func (s *Store) Server() *etcdserver.EtcdServer { return s.etcd.Server }

// Client reaches the store in process. Its calls need a context of Root. It ends with the Store.
func (s *Store) Client() *clientv3.Client { return s.client }

// Usage is what the users have in the store.
func (s *Store) Usage() *event.Value[[]*consensusv1.UserUsage] { return s.usage.Usage() }

// UsageNow is what the users have at this moment.
func (s *Store) UsageNow() []*consensusv1.UserUsage { return s.usage.Now() }

// Counted is the revision of the store to which the bytes of the users are counted.
func (s *Store) Counted() int64 { return s.usage.Revision() }

// MemberID is etcd's ID of the local member: 1 to 16 hexadecimal digits.
func (s *Store) MemberID() string { return s.etcd.Server.MemberID().String() }

// stopBound is how long Close waits for etcd. It takes a few milliseconds, and one second more if a peer's connection does not end.
const stopBound = 10 * time.Second

// memberName is how etcd prints an ID; 0 is nobody.
func memberName(id types.ID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}
