package nodes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
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
	Beat(ctx context.Context, node string, ttl time.Duration, known clientv3.LeaseID) (clientv3.LeaseID, error)
	ReadRecords(ctx context.Context) (*store.State, error)
	NoteIssued(ctx context.Context, issued store.Issued) (renewed bool, err error)
}

var _ Store = (*store.Store)(nil)

// Config is what the service needs.
type Config struct {
	Store Store
	// Snapshots and News are those of the cache.
	Snapshots, News *event.Value[*cache.Snapshot]
	Log             hclog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
	// HeartbeatTTL is in whole seconds; default DefaultHeartbeatTTL.
	HeartbeatTTL time.Duration
}

// Service serves reeve.cluster.v1.NodeService.
type Service struct {
	clusterv1.UnimplementedNodeServiceServer
	config Config
	paces  paces
}

// NewService returns the service.
func NewService(config Config) *Service {
	if config.HeartbeatTTL == 0 {
		config.HeartbeatTTL = DefaultHeartbeatTTL
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Service{config: config}
}

// Plugins is the catalog entries of a node's roles as the node is given them, sorted by name. Only plugins that run: what waits offers no role yet.
func Plugins(state *store.State, node *clusterv1.NodeRecord) (given []*clusterv1.PluginRecord) {
	var plugins []*clusterv1.PluginRecord
	for _, assignment := range node.GetRoles() {
		if _, plugin := state.Role(assignment.GetRole()); plugin != nil && !slices.Contains(plugins, plugin) {
			plugins = append(plugins, plugin)
			given = append(given, forNodes(state, plugin))
		}
	}
	slices.SortFunc(given, func(a, b *clusterv1.PluginRecord) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return given
}

// forNodes is what nodes are given of a plugin: all that they may run, and nothing that was not approved, or that they may not go back to since it has no report of the
// conformance suite where one is demanded.
func forNodes(state *store.State, plugin *clusterv1.PluginRecord) *clusterv1.PluginRecord {
	previous := plugin.GetPrevious()
	if rules.ReportsRequired(state.Demands()) {
		for _, digest := range previous.GetDigests() {
			if !rules.Proves(plugin, digest) {
				previous = nil
			}
		}
	}
	return &clusterv1.PluginRecord{
		Name: plugin.GetName(), Version: plugin.GetVersion(), Digests: plugin.GetDigests(), Manifest: plugin.GetManifest(), Grants: plugin.GetGrants(),
		Generation: plugin.GetGeneration(), Added: plugin.GetAdded(), Previous: previous, Genesis: plugin.GetGenesis(),
	}
}

// ReportStatus implements clusterv1.NodeServiceServer.
func (s *Service) ReportStatus(ctx context.Context, request *clusterv1.ReportStatusRequest) (*clusterv1.ReportStatusResponse, error) {
	id, err := callingNode(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.paces.reports(id, s.config.Now()); err != nil {
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
	response := new(clusterv1.ReportStatusResponse)
	if snapshot, ok := s.config.Snapshots.Get(); ok {
		response.PublishedBytes = uint32(cache.Room(snapshot.State))
	}
	return response, nil
}

// Heartbeat implements clusterv1.NodeServiceServer.
func (s *Service) Heartbeat(ctx context.Context, _ *clusterv1.HeartbeatRequest) (*clusterv1.HeartbeatResponse, error) {
	id, err := s.calls(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.config.Store.Beat(ctx, id, s.config.HeartbeatTTL, clientv3.NoLease); err != nil {
		return nil, err
	}
	return &clusterv1.HeartbeatResponse{TtlSeconds: uint32(s.config.HeartbeatTTL / time.Second)}, nil
}

// calls counts a call of the node that makes it.
func (s *Service) calls(ctx context.Context) (node string, err error) {
	if node, err = callingNode(ctx); err == nil {
		err = s.paces.calls(node, s.config.Now())
	}
	return node, err
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
