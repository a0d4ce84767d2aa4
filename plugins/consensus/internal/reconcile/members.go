package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// DefaultStallBound is how long a learner may make no progress before it is given up: longer than a restart of its node.
	DefaultStallBound = 2 * time.Minute
	// busyInterval is the pause between two steps while one is under way, idleInterval while all is as it should be: how soon it is told that a member does not answer.
	busyInterval = 100 * time.Millisecond
	idleInterval = 2 * time.Second
	// stepBound is how long one step may take.
	stepBound = 10 * time.Second
	// handBound is how much of that a damaged leader may take to hand over.
	handBound = stepBound / 2
)

// MemberStore is what Members need of the store.
type MemberStore interface {
	Client() *clientv3.Client
	Status() *event.Value[store.Status]
	ClusterID() string
	NodeID() string
	Peers() []store.Peer
	// Ask returns what the members say that answer.
	Ask(context.Context) map[uint64]peers.State
	Applied() uint64
	// Leads reports whether the local member is the leader at this moment.
	Leads() bool
	Removed(member uint64) bool
	AddLearner(ctx context.Context, id uint64, node, address string) error
	Promote(ctx context.Context, id uint64) error
	RemoveMember(ctx context.Context, id uint64) error
	MoveLeader(ctx context.Context, to uint64) error
}

// MembersConfig is what Members need.
type MembersConfig struct {
	Log         hclog.Logger
	Store       MemberStore
	ClusterUser string
	// StallBound is DefaultStallBound if it is zero.
	StallBound time.Duration
	// Gone reports whether the cluster is known to have a node no more; nil: none is.
	Gone func(node string) bool
	// Before is called before each change of the store, with its name: where a test ends everything. Nil: nothing is.
	Before func(step string)
}

// Members has the store have the members that the cluster API wishes, one safe step at a time.
type Members struct {
	MembersConfig
	key, state string
	last       []string // of the last good document
	replaced   []string // of the same
	asked      uint64   // of the same
	learner    learning
	marks      marks
	noted      map[uint64]time.Time // by member: when the note of its removal was first seen
	awaited    map[string]time.Time // by node that is to have a member: since when it is waited for
}

// NewMembers returns Members.
func NewMembers(config MembersConfig) *Members {
	if config.StallBound == 0 {
		config.StallBound = DefaultStallBound
	}
	if config.Gone == nil {
		config.Gone = func(string) bool { return false }
	}
	if config.Before == nil {
		config.Before = func(string) {}
	}
	return &Members{
		MembersConfig: config,
		key:           desired.Key(config.ClusterUser),
		state:         consensusv1.UserPrefix(config.ClusterUser) + consensusv1.StoreStateKey,
	}
}

// Run reconciles until ctx is done, and returns nil then.
func (m *Members) Run(ctx context.Context) error {
	status := m.Store.Status().Watch()
	timer := time.NewTimer(0)
	defer timer.Stop()
	watching, stop := context.WithCancel(store.Root(ctx))
	defer stop()
	documents := m.Store.Client().Watch(watching, m.key)
	shared := m.Store.Client().Watch(watching, peers.Prefix, clientv3.WithPrefix())
	said := ""
	for leading := false; ; {
		look := true
		select {
		case <-ctx.Done():
			return nil
		case <-status.Changed():
			current, err := status.Next(ctx)
			if err != nil {
				return nil
			}
			look = current.Leading() && !leading
			leading = current.Leading()
		case _, ok := <-documents:
			if !ok {
				documents = nil // the timer does it alone
			}
		case _, ok := <-shared:
			if !ok {
				shared = nil
			}
		case <-timer.C:
			timer.Reset(idleInterval)
		}
		if !leading {
			m.learner, m.marks, m.noted, m.awaited = learning{}, marks{}, nil, nil
		}
		if !look || !leading {
			continue
		}
		busy, err := m.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if err.Error() != said {
				m.Log.Warn("the members of the store are not as desired yet; trying again", "error", err)
				said = err.Error()
			}
			timer.Reset(firstRetry)
		case busy:
			said = ""
			timer.Reset(busyInterval)
		default:
			said = ""
			timer.Reset(idleInterval)
		}
	}
}

// round looks, takes one step at most, and tells how it is. It reports whether something is under way.
func (m *Members) round(ctx context.Context) (busy bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepBound)
	defer cancel()
	p, err := m.look(ctx)
	if err != nil {
		return false, err
	}
	busy, err = m.step(ctx, p)
	if errors.Is(err, errStepped) {
		return true, nil // what is told comes with the next look
	}
	return busy, errors.Join(err, m.publish(ctx, p))
}

// commit writes if the document is still the one that the round has read, and whatever else the comparisons say; otherwise what was decided is old, and nothing is written.
func (m *Members) commit(ctx context.Context, p *picture, comparisons []clientv3.Cmp, operations ...clientv3.Op) (*clientv3.TxnResponse, error) {
	comparisons = append(comparisons, clientv3.Compare(clientv3.ModRevision(m.key), "=", p.revision))
	answer, err := m.Store.Client().Txn(store.Root(ctx)).If(comparisons...).Then(operations...).Commit()
	if err == nil && !answer.Succeeded {
		return nil, errStepped
	}
	return answer, err
}

// errStepped says that the members have changed, so that what was seen of them is old.
var errStepped = errors.New("the members have changed")

// step takes the first step that there is to take. What must not happen at the same time waits for its turn.
func (m *Members) step(ctx context.Context, p *picture) (busy bool, err error) {
	done, err := m.finishRemovals(ctx, p)
	if err != nil || done {
		return true, err
	}
	heirs := p.trusted()
	if !p.distrusted[p.own.ID] || !p.measured || len(heirs) == 0 {
		return m.settle(ctx, p)
	}
	// Whoever leads acts upon what it holds. But where nobody takes the leadership over, somebody has to act.
	bounded, cancel := context.WithTimeout(ctx, handBound)
	handed := m.hand(bounded, p, heirs)
	cancel()
	if errors.Is(handed, errStepped) {
		return true, handed
	}
	_, err = m.settle(ctx, p)
	return true, errors.Join(handed, err)
}

// settle takes the first step toward the members that are desired.
func (m *Members) settle(ctx context.Context, p *picture) (busy bool, err error) {
	if len(p.desired) == 0 {
		return false, nil // no document, or none that was ever good: nobody is removed on the word of nothing
	}
	for _, peer := range p.peers {
		if peer.Learner {
			return true, m.teach(ctx, p, peer)
		}
	}
	m.learner = learning{}
	waits := len(p.removed) > 0
	added, addErr := m.add(ctx, p)
	if added {
		return true, addErr
	}
	removing, err := m.remove(ctx, p) // whatever keeps others from being added
	if err == nil {
		err = m.replaceAuthority(ctx, p) // whatever keeps others from being removed
	}
	return waits || removing, errors.Join(addErr, err)
}
