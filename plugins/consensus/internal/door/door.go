package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// DefaultQuorumGrace is how long instances keep their access after the store has lost its quorum, where they are not allowed to keep it for good: longer
// than an election or a restart of the other members, short enough that permissions which were taken meanwhile do not live on for long.
const DefaultQuorumGrace = 30 * time.Second

// retryInterval is how often a socket that could not be made is tried again.
const retryInterval = time.Second

// Config is what a Door needs.
type Config struct {
	Log hclog.Logger
	// QuorumGrace is DefaultQuorumGrace if it is zero.
	QuorumGrace time.Duration
	// Patience is DefaultPatience if it is zero.
	Patience time.Duration
	// ReadBound is DefaultReadBound if it is zero.
	ReadBound time.Duration
}

// State is the set that was last given and what became of each instance of it. It is never changed after it was published.
type State struct {
	CoreStart int64
	Number    uint64
	Access    []*consensusv1.AccessStatus // in the order of the set
}

// ErrStale refuses a set that is older than one that was given before.
var ErrStale = errors.New("the set of instances is older than one already seen")

// ErrInvalid refuses a set in which instances cannot be told apart.
var ErrInvalid = errors.New("the set of instances is not valid")

// Door lets instances in. Nothing is open before the first Set and outside of Run.
type Door struct {
	log                 hclog.Logger
	grace               time.Duration
	patience, readBound time.Duration
	state               event.Value[State]
	again               chan struct{} // asks Run to look again after a while; holds one

	mu     sync.Mutex
	set    *consensusv1.SetAccessRequest // nil before the first
	store  store.Status
	server *grpc.Server // nil outside of Run
	open   map[string]*opening
}

// New returns a Door with nothing open.
func New(config Config) *Door {
	grace := config.QuorumGrace
	if grace == 0 {
		grace = DefaultQuorumGrace
	}
	return &Door{log: config.Log, grace: grace, patience: cmp.Or(config.Patience, DefaultPatience), readBound: cmp.Or(config.ReadBound, DefaultReadBound),
		again: make(chan struct{}, 1), open: make(map[string]*opening)}
}

// State is what became of the instances; it holds nothing before the first Set.
func (d *Door) State() *event.Value[State] { return &d.state }

// Set replaces the set of instances that may be let in. When it returns, those that are no longer in it, or have changed, have lost all their
// connections. It fails with ErrStale or ErrInvalid, and nothing has changed then.
func (d *Door) Set(set *consensusv1.SetAccessRequest) error {
	ids := make(map[string]bool)
	sockets := make(map[string]bool)
	for n, instance := range set.GetInstances() {
		switch {
		case instance.GetInstanceId() == "":
			return fmt.Errorf("%w: instances[%d] has no instance ID", ErrInvalid, n)
		case ids[instance.InstanceId]:
			return fmt.Errorf("%w: instance %s is in it twice", ErrInvalid, instance.InstanceId)
		case sockets[instance.GetSocket()]:
			return fmt.Errorf("%w: instance %s shares its socket %s with another", ErrInvalid, instance.InstanceId, instance.Socket)
		}
		ids[instance.InstanceId] = true
		sockets[instance.Socket] = true
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if seen := d.set; seen != nil && older(set, seen) {
		return fmt.Errorf("%w: set %d of the core that started at %d, after set %d of the one that started at %d",
			ErrStale, set.GetNumber(), set.GetCoreStart(), seen.GetNumber(), seen.GetCoreStart())
	}
	d.set = proto.Clone(set).(*consensusv1.SetAccessRequest)
	d.apply()
	return nil
}

func older(a, b *consensusv1.SetAccessRequest) bool {
	if a.GetCoreStart() != b.GetCoreStart() {
		return a.GetCoreStart() < b.GetCoreStart()
	}
	return a.GetNumber() < b.GetNumber()
}

// Run serves a store until ctx is done, and then closes every socket and connection before it returns. It is to be called once, with a store whose
// authorization is on, and to return before the store is closed.
func (d *Door) Run(ctx context.Context, served Store, status *event.Value[store.Status]) error {
	server := newServer(served, d.patience, d.readBound)
	watcher := status.Watch()
	current, err := watcher.Next(ctx)
	if err != nil {
		return nil
	}
	d.look(func() { d.server, d.store = server, current })
	defer stopServer(server, d.log)
	defer d.look(func() { d.server = nil })

	timer := time.NewTimer(retryInterval)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Changed():
			current, err := watcher.Next(ctx)
			if err != nil {
				return nil
			}
			d.look(func() { d.store = current })
		case <-timer.C:
			d.look(func() {})
		case <-d.again:
			timer.Reset(retryInterval)
		}
	}
}

// look changes what decides who may be in, and acts upon it.
func (d *Door) look(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.apply()
}

// apply makes true what the set and the store's status say, and publishes the outcome: first it closes, then it opens, since one
// instance may take over another's socket.
func (d *Door) apply() {
	if d.set == nil {
		return
	}
	wanted := make(map[string]*consensusv1.AccessInstance, len(d.set.Instances))
	for _, instance := range d.set.Instances {
		wanted[instance.InstanceId] = instance
	}
	for id, opened := range d.open {
		instance := wanted[id]
		if instance != nil && proto.Equal(instance, opened.instance) && opened.user == d.store.Users[instance.ConsensusUser] && d.waiting(instance) == "" {
			continue
		}
		d.log.Debug("closing an instance", "instance", id, "user", opened.instance.ConsensusUser)
		opened.close()
		delete(d.open, id)
	}
	state := State{CoreStart: d.set.CoreStart, Number: d.set.Number}
	for _, instance := range d.set.Instances {
		state.Access = append(state.Access, d.admit(instance))
	}
	if before, ok := d.state.Get(); !ok || !before.equal(state) {
		d.state.Set(state)
	}
}

func (d *Door) admit(instance *consensusv1.AccessInstance) *consensusv1.AccessStatus {
	status := &consensusv1.AccessStatus{InstanceId: instance.InstanceId}
	if problem := problemOf(instance); problem != "" {
		status.State, status.Reason = consensusv1.AccessState_ACCESS_STATE_FAILED, problem
		return status
	}
	if reason := d.waiting(instance); reason != "" {
		status.State, status.Reason = consensusv1.AccessState_ACCESS_STATE_WAITING, reason
		return status
	}
	if d.open[instance.InstanceId] == nil {
		opened, err := open(d.log, d.server, instance, d.store.Users[instance.ConsensusUser])
		if err != nil {
			status.State, status.Reason = consensusv1.AccessState_ACCESS_STATE_FAILED, err.Error()
			d.lookAgain()
			return status
		}
		d.log.Debug("opened an instance", "instance", instance.InstanceId, "user", instance.ConsensusUser, "socket", instance.Socket)
		d.open[instance.InstanceId] = opened
	}
	status.State = consensusv1.AccessState_ACCESS_STATE_OPEN
	return status
}

// waiting says what an instance waits for; empty: it may come in.
func (d *Door) waiting(instance *consensusv1.AccessInstance) string {
	switch {
	case d.server == nil:
		return "the store is not served yet"
	case !d.store.Voter:
		return "the local member of the store is not a voter yet"
	case d.store.Distrusted() != "":
		return d.store.Distrusted()
	case d.store.Users[instance.ConsensusUser] == 0:
		return fmt.Sprintf("the store does not have the user %s yet", instance.ConsensusUser)
	case instance.WithoutQuorum || d.store.Quorum():
		return ""
	case time.Since(d.store.NoQuorum) > d.grace:
		return fmt.Sprintf("the store has had no quorum for more than %s", d.grace)
	}
	d.lookAgain()
	return ""
}

func (d *Door) lookAgain() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

func (s State) equal(other State) bool {
	if s.CoreStart != other.CoreStart || s.Number != other.Number || len(s.Access) != len(other.Access) {
		return false
	}
	for n := range s.Access {
		if !proto.Equal(s.Access[n], other.Access[n]) {
			return false
		}
	}
	return true
}
