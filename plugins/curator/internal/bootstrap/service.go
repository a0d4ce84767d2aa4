package bootstrap

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// storeWithin is how long a call waits for the store to open, which the first election of a new store is part of.
const storeWithin = 20 * time.Second

// Store is where a cluster is made: a *store.Store.
type Store interface {
	ca.Keys
	ReadAll(ctx context.Context) (*store.State, error)
	Create(ctx context.Context, genesis store.Genesis) (bool, error)
	Update(ctx context.Context, call store.Call, decide func(*store.State) (*store.Change, error)) (*store.State, error)
	NoteIssued(ctx context.Context, issued store.Issued) (renewed bool, err error)
}

// Audit keeps calls in the audit log: an *audit.Log.
type Audit interface {
	Do(ctx context.Context, rpc string, request proto.Message, handle func(context.Context) error) error
}

var _ Audit = (*audit.Log)(nil)

var _ Store = (*store.Store)(nil)

// Service serves reeve.cluster.v1.BootstrapService. It is there before the store is, and waits for it.
type Service struct {
	clusterv1.UnimplementedBootstrapServiceServer
	now  func() time.Time
	open *event.Value[*attached]
}

// attached is what the service works on.
type attached struct {
	store Store
	audit Audit
}

// NewService returns a Service without a store.
func NewService(now func() time.Time) *Service {
	return &Service{now: now, open: event.New[*attached](nil)}
}

// Attach gives the service its store, and the audit log that is kept in it.
func (s *Service) Attach(store Store, audit Audit) { s.open.Set(&attached{store: store, audit: audit}) }

// Detach takes them away again: calls wait for the next ones.
func (s *Service) Detach() { s.open.Set(nil) }

// Bootstrap implements clusterv1.BootstrapServiceServer.
func (s *Service) Bootstrap(ctx context.Context, request *clusterv1.BootstrapRequest) (*clusterv1.BootstrapResponse, error) {
	genesis, err := s.genesis(request)
	if err != nil {
		return nil, err
	}
	open, err := s.wait(ctx)
	if err != nil {
		return nil, err
	}
	response, err := s.bootstrap(ctx, open.store, genesis)
	if err != nil {
		return nil, answer.Error(err)
	}
	return response, nil
}

// wait waits for the store to open.
func (s *Service) wait(ctx context.Context) (*attached, error) {
	bounded, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	open, err := s.open.Wait(bounded, func(open *attached) bool { return open != nil })
	if err != nil {
		return nil, answer.Errorf(codes.Unavailable, "the consensus store has not opened to the curator yet: try again; the state of the role that provides %s says what it waits for",
			store.CapabilityConsensus)
	}
	return open, nil
}

func (s *Service) bootstrap(ctx context.Context, open Store, genesis store.Genesis) (*clusterv1.BootstrapResponse, error) {
	state, err := open.ReadAll(ctx)
	if err != nil {
		return nil, err
	}
	if state.Cluster == nil && state.Check() == nil {
		if err := s.sign(&genesis); err != nil {
			return nil, err
		}
		created, err := open.Create(ctx, genesis)
		if err != nil {
			return nil, err
		}
		if created {
			return s.answer(ctx, open, genesis.State(), genesis)
		}
		// Somebody else was first, or the store holds something that is not a cluster.
		if state, err = open.ReadAll(ctx); err != nil {
			return nil, err
		}
	}
	if err := state.Check(); err != nil {
		return nil, err
	}
	if state.Cluster == nil {
		return nil, status.Error(codes.FailedPrecondition, "the curator's part of the consensus store is not empty and holds no cluster: "+
			"it belongs to something else; start with an empty store")
	}
	if differences := differences(state.Cluster, genesis.Cluster); len(differences) > 0 {
		return nil, status.Errorf(codes.AlreadyExists, "the store already holds cluster %s, made with another %s: a cluster is made only once; "+
			"join this one, or start with an empty store", state.Cluster.GetClusterId(), strings.Join(differences, ", another "))
	}
	return s.answer(ctx, open, state, genesis)
}

// differences says in what a request differs from the cluster that was made.
func differences(stored, asked *curatorv1.Cluster) []string {
	var differences []string
	if stored.GetClusterId() != asked.GetClusterId() {
		differences = append(differences, fmt.Sprintf("cluster ID (this call: %s)", asked.GetClusterId()))
	}
	if !bytes.Equal(stored.GetFirstNodePublicKey(), asked.GetFirstNodePublicKey()) {
		differences = append(differences, fmt.Sprintf("first node (stored: %s, this call: %s)",
			identity.NodeID(stored.GetFirstNodePublicKey()), identity.NodeID(asked.GetFirstNodePublicKey())))
	}
	if !bytes.Equal(stored.GetOwnerPublicKey(), asked.GetOwnerPublicKey()) {
		differences = append(differences, fmt.Sprintf("owner key (stored: %s…, this call: %s…)",
			hex.EncodeToString(stored.GetOwnerPublicKey()[:8]), hex.EncodeToString(asked.GetOwnerPublicKey()[:8])))
	}
	return differences
}

// sign makes the cluster CA.
func (s *Service) sign(genesis *store.Genesis) error {
	authority, err := ca.Create(identity.TrustDomain(genesis.Cluster.GetClusterId()), s.now())
	if err != nil {
		return err
	}
	key, err := authority.Key()
	if err != nil {
		return err
	}
	genesis.CA = &curatorv1.CertificateAuthority{Certificates: [][]byte{authority.Certificate()}}
	genesis.Key = &curatorv1.SigningKey{PrivateKey: key}
	return nil
}

// answer issues a new SVID to the first node.
func (s *Service) answer(ctx context.Context, open Store, state *store.State, genesis store.Genesis) (*clusterv1.BootstrapResponse, error) {
	if node := state.Nodes[genesis.Node.GetId()]; node.GetState() != clusterv1.NodeState_NODE_STATE_UP {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s made cluster %s and is no longer a member of it", genesis.Node.GetId(), state.Cluster.GetClusterId())
	}
	authority, err := ca.Load(ctx, open)
	if err != nil {
		return nil, err
	}
	svid, err := authority.IssueNode(genesis.Node.GetPublicKey(), s.now())
	if err != nil {
		return nil, err
	}
	// It is for a list that people look at: where it cannot be kept, the node gets its SVID all the same, and is in the list from the next one on.
	_, _ = open.NoteIssued(ctx, store.Issued{Node: genesis.Node.GetId(), Certificate: svid[0]})
	return &clusterv1.BootstrapResponse{CaCertificates: state.CA, NodeSvid: svid}, nil
}
