package nodes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// DefaultHeartbeatTTL is how long a heartbeat is fresh. A node sends three in that time, so that one may be lost and one late; and it is more
// than an election of the store takes, so that a change of leader costs no node its health.
const DefaultHeartbeatTTL = 10 * time.Second

// Store is what the service writes and reads: a *store.Store.
type Store interface {
	ca.Keys
	ReadNode(ctx context.Context, id string) (*store.State, error)
	PutStatus(ctx context.Context, status *clusterv1.NodeStatus) error
	Beat(ctx context.Context, node string, ttl time.Duration) error
	ReadRecords(ctx context.Context) (*store.State, error)
	NoteIssued(ctx context.Context, issued store.Issued, lifetime time.Duration) error
}

var _ Store = (*store.Store)(nil)

// Config is what the service needs.
type Config struct {
	Store     Store
	Snapshots *event.Value[*cache.Snapshot]
	Log       hclog.Logger
	Now       func() time.Time
	// HeartbeatTTL is in whole seconds; default DefaultHeartbeatTTL.
	HeartbeatTTL time.Duration
}

// Service serves reeve.cluster.v1.NodeService.
type Service struct {
	clusterv1.UnimplementedNodeServiceServer
	config Config
}

// NewService returns the service.
func NewService(config Config) *Service {
	if config.HeartbeatTTL == 0 {
		config.HeartbeatTTL = DefaultHeartbeatTTL
	}
	return &Service{config: config}
}

// Watch implements clusterv1.NodeServiceServer.
func (s *Service) Watch(_ *clusterv1.WatchRequest, stream grpc.ServerStreamingServer[clusterv1.WatchResponse]) error {
	ctx := stream.Context()
	id, err := callingNode(ctx)
	if err != nil {
		return err
	}
	// The cache may be behind the store. A node that comes from another curator must not be sent back to roles that it had before.
	stored, err := s.config.Store.ReadNode(ctx, id)
	if err != nil {
		return err
	}
	if stored.Nodes[id] == nil {
		return gone(id)
	}
	known := func(snapshot *cache.Snapshot) bool {
		return snapshot.Cluster != nil && snapshot.Nodes[id].GetGeneration() >= stored.Nodes[id].GetGeneration()
	}
	if _, err := s.config.Snapshots.Wait(ctx, known); err != nil {
		return err
	}
	var sent *clusterv1.WatchResponse
	for watcher := s.config.Snapshots.Watch(); ; {
		snapshot, err := watcher.Next(ctx)
		if err != nil {
			return err
		}
		response, err := view(snapshot, id)
		if err != nil {
			return err
		}
		if sent != nil {
			revision := response.Revision
			response.Revision = sent.Revision
			if proto.Equal(response, sent) {
				continue
			}
			response.Revision = revision
		}
		if err := stream.Send(response); err != nil {
			return err
		}
		sent = response
	}
}

// view is what a node sees of a snapshot.
func view(snapshot *cache.Snapshot, id string) (*clusterv1.WatchResponse, error) {
	node := snapshot.Nodes[id]
	if node == nil || snapshot.Cluster == nil {
		return nil, gone(id)
	}
	if node.GetState() == clusterv1.NodeState_NODE_STATE_DECOMMISSIONED {
		return nil, answer.Removed(node)
	}
	response := &clusterv1.WatchResponse{
		Revision:       uint64(snapshot.Revision),
		Node:           node,
		Directory:      snapshot.Directory,
		CaCertificates: snapshot.CA,
		OwnerPublicKey: snapshot.Cluster.GetOwnerPublicKey(),
		Operators:      snapshot.OperatorList(),
		Policy:         snapshot.Demands(),
	}
	response.Plugins = Plugins(snapshot.State, node)
	return response, nil
}

// Plugins is the catalog entries of a node's roles as the node is given them, sorted by name. Only plugins that run: what waits offers no role yet.
func Plugins(state *store.State, node *clusterv1.NodeRecord) (given []*clusterv1.PluginRecord) {
	var plugins []*clusterv1.PluginRecord
	for _, assignment := range node.GetRoles() {
		if _, plugin := state.Role(assignment.GetRole()); plugin != nil && !slices.Contains(plugins, plugin) {
			plugins = append(plugins, plugin)
			given = append(given, forNodes(plugin))
		}
	}
	slices.SortFunc(given, func(a, b *clusterv1.PluginRecord) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return given
}

// forNodes is what nodes are given of a plugin: all that they may run, and nothing that was not approved.
func forNodes(plugin *clusterv1.PluginRecord) *clusterv1.PluginRecord {
	return &clusterv1.PluginRecord{
		Name: plugin.GetName(), Version: plugin.GetVersion(), Digests: plugin.GetDigests(), Manifest: plugin.GetManifest(), Grants: plugin.GetGrants(),
		Generation: plugin.GetGeneration(), Added: plugin.GetAdded(), Previous: plugin.GetPrevious(), Genesis: plugin.GetGenesis(),
	}
}

// ReportStatus implements clusterv1.NodeServiceServer.
func (s *Service) ReportStatus(ctx context.Context, request *clusterv1.ReportStatusRequest) (*clusterv1.ReportStatusResponse, error) {
	id, err := callingNode(ctx)
	if err != nil {
		return nil, err
	}
	if claimed := request.GetStatus().GetNodeId(); claimed != "" && claimed != id {
		return nil, status.Errorf(codes.PermissionDenied, "node %s reports the status of node %q: a node speaks only for itself", id, claimed)
	}
	if err := answer.Invalid(checkStatus("status", request.GetStatus())); err != nil {
		return nil, err
	}
	reported := proto.CloneOf(request.GetStatus())
	reported.NodeId = id
	reported.Reported = timestamppb.New(s.config.Now())
	slices.SortFunc(reported.Instances, func(a, b *clusterv1.InstanceStatus) int { return cmp.Compare(a.GetRole(), b.GetRole()) })
	if err := s.config.Store.PutStatus(ctx, reported); err != nil {
		return nil, err
	}
	return &clusterv1.ReportStatusResponse{}, nil
}

// Heartbeat implements clusterv1.NodeServiceServer.
func (s *Service) Heartbeat(ctx context.Context, _ *clusterv1.HeartbeatRequest) (*clusterv1.HeartbeatResponse, error) {
	id, err := callingNode(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.config.Store.Beat(ctx, id, s.config.HeartbeatTTL); err != nil {
		return nil, err
	}
	return &clusterv1.HeartbeatResponse{TtlSeconds: uint32(s.config.HeartbeatTTL / time.Second)}, nil
}

func callingNode(ctx context.Context) (string, error) {
	caller, ok := auth.CallerOf(ctx)
	if !ok || caller.NodeID == "" {
		return "", status.Error(codes.PermissionDenied, "only nodes call this, and the caller is not known to be one")
	}
	return caller.NodeID, nil
}

// gone is for a node whose record went away while it was calling. It is no more than this curator's word: a node leaves only by a
// tombstone.
func gone(id string) error {
	return status.Errorf(codes.Unauthenticated, "the cluster has no record of node %s", id)
}
