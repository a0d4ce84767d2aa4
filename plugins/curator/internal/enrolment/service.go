package enrolment

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Store is what the service reads and writes: a *store.Store.
type Store interface {
	ca.Keys
	ReadNode(ctx context.Context, id string) (*store.State, error)
	ReadRecords(ctx context.Context) (*store.State, error)
	ReadEnrolment(ctx context.Context, node, ticket string) (*store.State, error)
	ReadCUK(ctx context.Context, node string) ([]byte, error)
	Update(ctx context.Context, call store.Call, decide func(*store.State) (*store.Change, error)) (*store.State, error)
	NoteIssued(ctx context.Context, issued store.Issued) (renewed bool, err error)
}

var _ Store = (*store.Store)(nil)

// Config is what the service needs.
type Config struct {
	Store Store
	// Snapshots and News are those of the cache.
	Snapshots, News *event.Value[*cache.Snapshot]
	Starts          *auth.Starts
	Log             hclog.Logger
	Now             func() time.Time
	// ClusterUser is the ConsensusUser of the role that provides the cluster API.
	ClusterUser string
	// CheckRoles holds a node's record with other roles against the rules of the whole cluster; field is where the roles are in the request, for messages.
	CheckRoles func(state *store.State, before, after *clusterv1.NodeRecord, field string) error
	// LetIn is told of a caller who is no stranger any more, and which node it is, or is to be.
	LetIn func(ctx context.Context, node string)
}

// Service serves reeve.cluster.v1.EnrolmentService.
type Service struct {
	clusterv1.UnimplementedEnrolmentServiceServer
	config   Config
	failures *failures
	// These hold one for every registration that is under way, and for every other call that is looked up, of those who are known and of strangers.
	registering, known, strange chan struct{}
}

// NewService returns the service.
func NewService(config Config) *Service {
	return &Service{
		config: config, failures: newFailures(config.Now),
		registering: make(chan struct{}, atOnce), known: make(chan struct{}, knownAtOnce), strange: make(chan struct{}, strangersAtOnce),
	}
}

// caller is who has called: the key that it has proved, and the ID that a node with that key has.
type caller struct {
	key  ed25519.PublicKey
	id   string
	host string
	// known is whether the key is that of a node, by what this curator has heard.
	known bool
	// attempt is what a call counts as that has entered.
	attempt *attempt
}

// from returns who has called, unless too many calls from there have failed. Those whose key is that of a node are always let through: a stranger at the same
// address must not keep a node from its volume.
func (s *Service) from(ctx context.Context, isKnown func(*cache.Snapshot, ed25519.PublicKey) bool) (caller, error) {
	admitted, ok := auth.CallerOf(ctx)
	if !ok || len(admitted.Key) != ed25519.PublicKeySize {
		return caller{}, answer.Errorf(codes.PermissionDenied, "only machines that come call this, with a self-signed certificate of their key")
	}
	c := caller{key: admitted.Key, id: identity.NodeID(admitted.Key)}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		c.host = audit.Network(from.Addr.String())
	}
	if snapshot, ok := s.config.Snapshots.Get(); ok && isKnown(snapshot, c.key) {
		c.known = true
		return c, nil
	}
	if !s.failures.allow(c.host) {
		return caller{}, tooMany()
	}
	return c, nil
}

func tooMany() error {
	return answer.Errorf(codes.ResourceExhausted, "too many calls from this machine's address have failed: try again in a minute")
}

// enter waits for a caller's turn, and counts a stranger's call as one that failed until it ends: a read for each is made before anybody knows how they end.
func (s *Service) enter(ctx context.Context, c *caller, turns chan struct{}, crowded string) (done func(), err error) {
	left, err := turn(ctx, turns, crowded)
	if err != nil {
		return nil, err
	}
	if !c.known {
		if c.attempt = s.failures.begin(c.host); c.attempt == nil {
			left()
			return nil, tooMany()
		}
	}
	return func() {
		c.attempt.end()
		left()
	}, nil
}

// lookUp is the turn of whoever does not register.
func (s *Service) lookUp(ctx context.Context, c *caller) (done func(), err error) {
	turns := s.strange
	if c.known {
		turns = s.known
	}
	return s.enter(ctx, c, turns, "ask for their place or their key")
}

// byNodeKey reports whether a key is the node key of a node that is known. One that was removed is a stranger.
func byNodeKey(snapshot *cache.Snapshot, key ed25519.PublicKey) bool {
	return stands(recordOf(snapshot.State, key))
}

// stands reports whether there is a node that was not removed.
func stands(node *clusterv1.NodeRecord) bool {
	return node != nil && node.GetState() != clusterv1.NodeState_NODE_STATE_DECOMMISSIONED
}

// recordOf returns the record that pins a key as its node's; nil: there is none.
func recordOf(state *store.State, key ed25519.PublicKey) *clusterv1.NodeRecord {
	if node := state.Nodes[identity.NodeID(key)]; node != nil && key.Equal(ed25519.PublicKey(node.GetPublicKey())) {
		return node
	}
	return nil
}

// failed counts a call of a stranger against where it came from, unless the caller is not to blame for how it ended.
func (s *Service) failed(c caller, err error) error {
	switch status.Code(answer.Error(err)) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.NotFound, codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition:
		c.attempt.fail()
	}
	return err
}

// recognised takes note of that a caller is no stranger: it is the node with an ID, or may become it. What it calls is kept under its name from here on.
func (s *Service) recognised(ctx context.Context, id string) {
	audit.CallOf(ctx).By("machine "+id, clusterv1.Caller_CALLER_NEWCOMER)
	if s.config.LetIn != nil {
		s.config.LetIn(ctx, id)
	}
}

// record returns what the cluster has decided about the node whose node key the caller has proved, and no stranger's call comes further than this.
func (s *Service) record(ctx context.Context, c caller) (*store.State, *clusterv1.NodeRecord, error) {
	done, err := s.lookUp(ctx, &c)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	state, err := s.config.Store.ReadNode(ctx, c.id)
	if err != nil {
		return nil, nil, err
	}
	node := recordOf(state, c.key)
	if node == nil {
		return nil, nil, s.failed(c, answer.Errorf(codes.NotFound, "cluster %s has no node with this key: register it first, with a ticket (`reeve ticket create`)",
			state.Cluster.GetClusterId()))
	}
	if !stands(node) {
		return nil, nil, s.failed(c, answer.Removed(node, state.Generation))
	}
	s.recognised(ctx, node.GetId())
	return state, node, nil
}

// curators is where the cluster's curators are reached, as far as this one knows.
func (s *Service) curators() []string {
	snapshot, ok := s.config.Snapshots.Get()
	if !ok {
		return nil
	}
	return snapshot.Curators()
}
