package management

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// minBeginning is how much of a node ID must be given: "reeve-" and two digits.
const minBeginning = 8

// Store is what the service reads and writes: a *store.Store.
type Store interface {
	ReadCluster(ctx context.Context) (*store.State, error)
	ReadNodes(ctx context.Context, beginning string) (*store.State, error)
	ReadReported(ctx context.Context, records *store.State, first, last string) (*store.State, error)
	ReadRecords(ctx context.Context) (*store.State, error)
	ReadSnapshots(ctx context.Context) (*store.State, error)
	Update(ctx context.Context, call store.Call, decide func(*store.State) (*store.Change, error)) (*store.State, error)
	Preview(ctx context.Context, decide func(*store.State) (*store.Change, error)) (*store.State, error)
	ListAudit(ctx context.Context, before uint64, limit int) (entries []*clusterv1.AuditEntry, more bool, err error)
	ReadNextKey(ctx context.Context) ([]byte, error)
	ReadNode(ctx context.Context, id string) (*store.State, error)
	ReadTickets(ctx context.Context) (*store.State, error)
	ReadReport(ctx context.Context, plugin, digest string) ([]byte, error)
	SweepTickets(ctx context.Context, revision int64, ids []string) error
	ListIssued(ctx context.Context, after string, limit int) (all []store.Issued, next string, err error)
	ca.Keys
}

var _ Store = (*store.Store)(nil)

// Config is what the service needs.
type Config struct {
	Store     Store
	Snapshots *event.Value[*cache.Snapshot]
	Log       hclog.Logger
	Now       func() time.Time
	// StoreSnapshots takes snapshots of the store; nil: nobody does.
	StoreSnapshots consensusv1.SnapshotServiceClient
	// Stored are the scheduled snapshots of this node.
	Stored *scheduled.Directory
	// LoggedIn is told of every session certificate that is issued.
	LoggedIn func(role clusterv1.OperatorRole)
}

// Service serves reeve.cluster.v1.ManagementService.
type Service struct {
	clusterv1.UnimplementedManagementServiceServer
	config  Config
	writers writers
}

// NewService returns the service.
func NewService(config Config) *Service { return &Service{config: config} }

// GetClusterInfo implements clusterv1.ManagementServiceServer.
func (s *Service) GetClusterInfo(ctx context.Context, _ *clusterv1.GetClusterInfoRequest) (*clusterv1.GetClusterInfoResponse, error) {
	state, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	return &clusterv1.GetClusterInfoResponse{
		ClusterId:      state.Cluster.GetClusterId(),
		TrustDomain:    identity.TrustDomain(state.Cluster.GetClusterId()),
		CaCertificates: state.CA,
		OwnerPublicKey: state.Cluster.GetOwnerPublicKey(),
		Nodes:          standing(state),
	}, nil
}

// standing is how many nodes there are that were not removed.
func standing(state *store.State) (nodes uint32) {
	for _, node := range state.Nodes {
		if node.GetState() != clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
			nodes++
		}
	}
	return nodes
}

// ListNodes implements clusterv1.ManagementServiceServer.
func (s *Service) ListNodes(ctx context.Context, request *clusterv1.ListNodesRequest) (*clusterv1.ListNodesResponse, error) {
	records, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	ids := records.NodeIDs()
	ids = ids[sort.Search(len(ids), func(i int) bool { return ids[i] > request.GetAfter() }):]
	// Who does not say how many knows no pages, and would take the first one for all.
	pages := request.GetLimit() > 0
	most, room := len(ids), limits.Message
	if pages {
		most, room = int(min(request.GetLimit(), maxNodes)), maxNodeBytes
	}
	response := new(clusterv1.ListNodesResponse)
	for size := 0; len(ids) > 0; {
		part := ids[:min(len(ids), most-len(response.GetNodes()), nodesPerRead)]
		if response.More = len(part) == 0; response.More {
			break
		}
		state, err := s.config.Store.ReadReported(ctx, records, part[0], part[len(part)-1])
		if err != nil {
			return nil, err
		}
		for _, id := range part {
			node := state.Node(id)
			size += proto.Size(node) + nodeFraming
			switch {
			case size <= room || pages && len(response.GetNodes()) == 0:
				response.Nodes = append(response.Nodes, node)
			case pages:
				response.More = true
				return response, nil
			default:
				return nil, answer.Errorf(codes.ResourceExhausted, "the %d nodes of the cluster are more than one answer holds: ask for them by pages, as a later version of the command line does", len(records.Nodes))
			}
		}
		ids = ids[len(part):]
	}
	return response, nil
}

const (
	// maxNodes is how many nodes one page lists, and maxNodeBytes of about what size: a status may be large, and a message may not.
	maxNodes     = 1000
	maxNodeBytes = limits.Message / 4
	// nodesPerRead is how many nodes are read at once.
	nodesPerRead = 32
	// nodeFraming is how much more a node takes in an answer than by itself, at most.
	nodeFraming = 8
)

// GetNode implements clusterv1.ManagementServiceServer.
func (s *Service) GetNode(ctx context.Context, request *clusterv1.GetNodeRequest) (*clusterv1.GetNodeResponse, error) {
	beginning := request.GetNodeId()
	if len(beginning) >= minBeginning {
		state, err := s.config.Store.ReadNodes(ctx, beginning)
		if err != nil {
			return nil, err
		}
		if id, err := find(state, beginning); err == nil {
			return &clusterv1.GetNodeResponse{Node: state.Node(id)}, nil
		}
	}
	// Which nodes there are instead is said of all.
	records, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return nil, err
	}
	id, err := find(records, beginning)
	if err != nil {
		return nil, err
	}
	state, err := s.config.Store.ReadReported(ctx, records, id, id)
	if err != nil {
		return nil, err
	}
	return &clusterv1.GetNodeResponse{Node: state.Node(id)}, nil
}

// WatchNode implements clusterv1.ManagementServiceServer.
func (s *Service) WatchNode(request *clusterv1.WatchNodeRequest, stream grpc.ServerStreamingServer[clusterv1.WatchNodeResponse]) error {
	ctx := stream.Context()
	stored, err := s.config.Store.ReadRecords(ctx)
	if err != nil {
		return err
	}
	id, err := find(stored, request.GetNodeId())
	if err != nil {
		return err
	}
	// What the caller has just changed, perhaps through another curator, must be in the first message.
	known := func(snapshot *cache.Snapshot) bool {
		return snapshot.Nodes[id].GetGeneration() >= stored.Nodes[id].GetGeneration()
	}
	if _, err := s.config.Snapshots.Wait(ctx, known); err != nil {
		return err
	}
	var sent *clusterv1.Node
	for watcher := s.config.Snapshots.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		node := snapshot.Node(id)
		if node == nil {
			return answer.Errorf(codes.NotFound, "the cluster has no record of node %s any more", id)
		}
		if sent != nil && same(node, sent) {
			continue
		}
		if err := stream.Send(&clusterv1.WatchNodeResponse{Node: node}); err != nil {
			return err
		}
		sent = node
	}
}

// same reports whether two snapshots show a node alike. Most snapshots are about other nodes, and have the same record and status of this one: what is large is compared only if it was written.
func same(node, before *clusterv1.Node) bool {
	if node.GetRecord() != before.GetRecord() || node.GetStatus() != before.GetStatus() {
		return proto.Equal(node, before)
	}
	rest := func(of *clusterv1.Node) *clusterv1.Node {
		return &clusterv1.Node{Healthy: of.GetHealthy(), Store: of.GetStore(), Problem: of.GetProblem()}
	}
	return proto.Equal(rest(node), rest(before))
}

// find returns the ID of the node that a caller means by its ID or the beginning of it.
func find(state *store.State, beginning string) (string, error) {
	if _, exact := state.Nodes[beginning]; exact {
		return beginning, nil
	}
	if len(beginning) < minBeginning {
		return "", answer.Errorf(codes.InvalidArgument, "%s is too short to name a node: give at least %d characters of its ID; %s",
			quote(beginning), minBeginning, nodeList(state.NodeIDs()))
	}
	matches := slices.DeleteFunc(state.NodeIDs(), func(id string) bool { return !strings.HasPrefix(id, beginning) })
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return "", answer.Errorf(codes.NotFound, "the cluster has no node %s; %s", quote(beginning), nodeList(state.NodeIDs()))
	default:
		return "", answer.Errorf(codes.InvalidArgument, "%s is the beginning of several nodes: give more of its ID; %s", quote(beginning), nodeList(matches))
	}
}

// nodeList names nodes for a message, which must stay readable.
func nodeList(ids []string) string {
	const most = 10
	if len(ids) > most {
		return fmt.Sprintf("the nodes are %s and %d more (`reeve node list`)", strings.Join(ids[:most], ", "), len(ids)-most)
	}
	return "the nodes are " + strings.Join(ids, ", ")
}

func quote(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// change makes one management write for a call, or, for a dry run, finds out what it would lead to. Nobody changes anything who was revoked before the
// change is made: the state that is decided from is the one that is changed.
func (s *Service) change(ctx context.Context, dryRun bool, decide func(*store.State) (*store.Change, error)) (*store.State, error) {
	caller, _ := auth.CallerOf(ctx)
	var last *store.Change
	checked := func(state *store.State) (*store.Change, error) {
		if err := caller.Check(state); err != nil {
			return nil, err
		}
		change, err := decide(state)
		if change != nil {
			last = change
		}
		return change, err
	}
	if dryRun {
		return s.config.Store.Preview(ctx, checked)
	}
	write, err := s.writers.begin(ctx, caller)
	if err != nil {
		return nil, err
	}
	defer func() { write.end(last) }()
	return s.config.Store.Update(ctx, audit.CallOf(ctx), checked)
}

// made logs a change that an operator made.
func (s *Service) made(ctx context.Context, dryRun bool, change string, about ...any) {
	if dryRun {
		return
	}
	caller, _ := auth.CallerOf(ctx)
	s.config.Log.Info(change, append(about, "by", caller.String())...)
}
