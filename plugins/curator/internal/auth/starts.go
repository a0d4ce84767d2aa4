package auth

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// startTries is how often a start that another one got in front of is looked at again.
	startTries = 5
	// noteEvery is how often at most this curator notes the refused starts of one node, and noteAgain how old a note of the very same start becomes: one
	// who is refused calls several times a second.
	noteEvery = 10 * time.Second
	noteAgain = 10 * time.Minute
	// startsAtOnce and startEvery bound the starts of one node: so many at once, and then one in that time. Each is written to the store, which does not bound what a curator writes. No core starts as often, and who has the key of a node
	// can claim to.
	startsAtOnce = 64
	startEvery   = time.Second
)

// StartStore is where the starts of nodes are kept: a *store.Store.
type StartStore interface {
	ReadNode(ctx context.Context, id string) (*store.State, error)
	Incarnate(ctx context.Context, revision int64, node string, incarnation *clusterv1.Incarnation) (int64, error)
	NoteRefused(ctx context.Context, revision int64, node string, refused *curatorv1.RefusedIncarnation) error
}

var _ StartStore = (*store.Store)(nil)

// StartsConfig is what Starts needs.
type StartsConfig struct {
	Store StartStore
	Log   hclog.Logger
	Now   func() time.Time
}

// Starts tells the start of a node's core that is taken for the node from those of copies of it.
type Starts struct {
	config StartsConfig

	mu    sync.Mutex
	noted map[string]time.Time     // when a refused start was last noted, by node ID; no longer than the cluster has nodes, since who calls is one
	paces map[string]*rate.Limiter // by node ID, as above
}

// NewStarts returns Starts that have noted nothing yet.
func NewStarts(config StartsConfig) *Starts {
	return &Starts{config: config, noted: make(map[string]time.Time), paces: make(map[string]*rate.Limiter)}
}

// calling returns a node with the incarnation that its call carries.
func (s *Starts) calling(ctx context.Context, caller Caller) (Caller, error) {
	var header string
	if values := metadata.ValueFromIncomingContext(ctx, clusterv1.IncarnationHeader); len(values) == 1 {
		header = values[0]
	}
	incarnation, err := clusterv1.ParseIncarnation(header)
	if err != nil {
		return Caller{}, answer.Errorf(codes.InvalidArgument, "the call of node %s does not say by one header %q which start of its core it is of: "+
			"run a version of the core that does", caller.NodeID, clusterv1.IncarnationHeader)
	}
	caller.incarnation = incarnation
	caller.revision, caller.over, err = s.Admit(ctx, caller.state, caller.NodeID, incarnation)
	// A stream keeps who has called for as long as it lasts, of every node.
	caller.state = nil
	return caller, err
}

// Admit returns why a start of a node's core is not taken for the node, and otherwise the revision since which it is. A higher number than is known is a later
// start, and is taken. over is the one that stays known instead of one that is taken and could not be kept. state is what was read of the node (ReadNode).
func (s *Starts) Admit(
	ctx context.Context, state *store.State, node string, incarnation *clusterv1.Incarnation,
) (revision int64, over *curatorv1.KnownIncarnation, err error) {
	for try := 1; ; try++ {
		known := state.Incarnations[node]
		switch {
		case known != nil && known.GetNumber() > incarnation.GetNumber():
			return 0, nil, s.refuse(ctx, state, node, incarnation, known, false)
		case known != nil && known.GetNumber() == incarnation.GetNumber() && !bytes.Equal(known.GetNonce(), incarnation.GetNonce()):
			return 0, nil, s.refuse(ctx, state, node, incarnation, known, true)
		case known != nil && known.GetNumber() == incarnation.GetNumber():
			return state.Revision, nil, nil
		}
		if err := s.Begin(node); err != nil {
			return 0, nil, err
		}
		revision, err := s.config.Store.Incarnate(ctx, state.Revision, node, incarnation)
		if err == nil {
			return revision, nil, nil
		}
		if errors.Is(err, store.ErrFull) {
			// A store that is full must not keep a node from what sets it right; that it is a later start than is known is so all the same.
			s.config.Log.Warn("a start of a node is taken that cannot be kept", "node", node, "number", incarnation.GetNumber(), "error", err)
			return state.Revision, known, nil
		}
		if !errors.Is(err, store.ErrConflict) || try == startTries {
			return 0, nil, answer.Error(err)
		}
		if state, err = s.config.Store.ReadNode(ctx, node); err != nil {
			return 0, nil, answer.Error(err)
		}
		if record := state.Nodes[node]; record.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			return 0, nil, answer.Removed(record, state.Generation)
		}
	}
}

// Begin counts what a node does once for each of its starts, or says why it is one too many.
func (s *Starts) Begin(node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paces[node] == nil {
		s.paces[node] = rate.NewLimiter(rate.Every(startEvery), startsAtOnce)
	}
	if !s.paces[node].AllowN(s.config.Now(), 1) {
		return answer.Errorf(codes.ResourceExhausted, "node %s starts more often than any core does: it may do so %d times at once and then once in %v: wait, and find out who has its key", node, startsAtOnce, startEvery)
	}
	return nil
}

// refuse notes for operators, now and then, which start was refused.
func (s *Starts) refuse(ctx context.Context, state *store.State, node string, incarnation *clusterv1.Incarnation, known *curatorv1.KnownIncarnation, twin bool) error {
	refused := &curatorv1.RefusedIncarnation{Number: incarnation.GetNumber(), Known: known.GetNumber(), Twin: twin, Time: timestamppb.New(s.config.Now())}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		refused.Address = from.Addr.String()
	}
	if s.news(node, state.Refused[node], refused) {
		s.config.Log.Warn("a start of a node was refused that is not the one which is taken for the node", "node", node, "number", refused.GetNumber(),
			"known", refused.GetKnown(), "twin", twin, "address", refused.GetAddress())
		if err := s.config.Store.NoteRefused(ctx, state.Revision, node, refused); err != nil {
			s.config.Log.Warn("that a start of a node was refused could not be kept for operators", "node", node, "error", err)
		}
	}
	return answer.RefusedStart(node, incarnation.GetNumber(), known.GetNumber(), twin)
}

// news reports whether a refused start is to be noted after the one that is.
func (s *Starts) news(node string, noted, refused *curatorv1.RefusedIncarnation) bool {
	now := s.config.Now()
	if noted != nil && noted.GetNumber() == refused.GetNumber() && noted.GetKnown() == refused.GetKnown() && noted.GetTwin() == refused.GetTwin() {
		if age := now.Sub(noted.GetTime().AsTime()); age >= 0 && age < noteAgain {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A note that was taken away was accepted: what comes after it is news at once.
	if age := now.Sub(s.noted[node]); noted != nil && age >= 0 && age < noteEvery {
		return false
	}
	s.noted[node] = now
	return true
}

// superseded returns why a node's stream ends in a later state of the cluster: the node was removed, or another start of its core has called since. nil: it
// goes on.
func (c Caller) superseded(state *store.State) error {
	if state.Revision <= c.revision {
		return nil // the cache may be behind what the caller was admitted by
	}
	if node := state.Nodes[c.NodeID]; node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
		return answer.Removed(node, state.Generation)
	}
	known := state.Incarnations[c.NodeID]
	if known == nil || known.GetNumber() == c.incarnation.GetNumber() && bytes.Equal(known.GetNonce(), c.incarnation.GetNonce()) {
		return nil
	}
	if proto.Equal(known, c.over) {
		return nil // the caller's own start could not be kept
	}
	return answer.RefusedStart(c.NodeID, c.incarnation.GetNumber(), known.GetNumber(), known.GetNumber() == c.incarnation.GetNumber())
}
