package command_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// nodeAPI is the own API of a node.
type nodeAPI struct {
	nodev1.UnimplementedNodeServiceServer
	cluster *cluster
	node    *node
	// local says that it is served on the socket. served is what the volume's was then.
	local  bool
	served int
}

func (n *nodeAPI) status() *nodev1.Status {
	s := &nodev1.Status{
		NodeId: n.node.ID, Node: n.cluster.shown(n.node), Store: proto.CloneOf(n.cluster.side.store), Membership: proto.CloneOf(n.cluster.member), CoreStart: began.UnixNano(),
		Cluster: &nodev1.ClusterAccess{ClusterId: n.cluster.ID, CaCertificates: [][]byte{n.cluster.CA}, Curators: []string{n.cluster.Curator()}},
	}
	if told := n.node.told.GetCaCertificates(); len(told) > 0 {
		s.Cluster.CaCertificates = told
	}
	if n.node == n.cluster.nodes[0] {
		n.cluster.volume.describe(s)
	}
	return s
}

func (n *nodeAPI) GetStatus(context.Context, *nodev1.GetStatusRequest) (*nodev1.GetStatusResponse, error) {
	return &nodev1.GetStatusResponse{Status: n.status()}, nil
}

func (n *nodeAPI) WatchStatus(_ *nodev1.WatchStatusRequest, stream grpc.ServerStreamingServer[nodev1.WatchStatusResponse]) error {
	return n.cluster.watch(stream.Context(), func() error {
		if n.local && n.served != n.cluster.volume.served {
			return status.Error(codes.Unavailable, "the node's own API is served anew")
		}
		return stream.Send(&nodev1.WatchStatusResponse{Status: n.status()})
	})
}

// nodeSide is what only the nodes themselves know: all of them the same. It is guarded by the cluster's mutex.
type nodeSide struct {
	events []*nodev1.Event
	// logs are lines, by role.
	logs map[string][]string
	// emptied counts how often a log was begun anew, by role.
	emptied map[string]int
	store   *consensusv1.StoreStatus
	// restarts counts the instances that RestartRole began.
	restarts uint64
	// followers is how many follow a log or events.
	followers int
	// socket and local are the local node's.
	socket string
	local  *grpc.Server
}

// firstLog is what every role has written before anything else.
var firstLog = []string{"one", "two", "three \x1b[2J<&>"}

// addEvent has something happen on the nodes.
func (c *cluster) addEvent(severity nodev1.Severity, kind, role, message string) {
	c.update(func() {
		c.side.events = append(c.side.events, &nodev1.Event{
			Sequence: uint64(len(c.side.events) + 1), Time: timestamppb.New(began.Add(time.Duration(len(c.side.events)) * time.Second)),
			Severity: severity, Type: kind, Role: role, Message: message,
		})
	})
}

// addLog has a role write a line.
func (c *cluster) addLog(role, line string) {
	c.update(func() { c.side.setLog(role, append(slices.Clone(c.side.log(role)), line)) })
}

// emptyLog takes away what a role wrote.
func (c *cluster) emptyLog(role string) {
	c.update(func() {
		c.side.setLog(role, []string{})
		c.side.emptied[role]++
	})
}

func (s *nodeSide) log(role string) []string {
	if lines, ok := s.logs[role]; ok {
		return lines
	}
	return firstLog
}

func (s *nodeSide) setLog(role string, lines []string) {
	if s.logs == nil {
		s.logs, s.emptied = make(map[string][]string), make(map[string]int)
	}
	s.logs[role] = lines
}

// setStore gives the nodes a member of the store, with what keeps it from its work.
func (c *cluster) setStore(problem string) {
	c.update(func() {
		c.side.store = &consensusv1.StoreStatus{
			Formed: true, ClusterId: c.ID, MemberId: "8e9e05c52164694d", LeaderId: "8e9e05c52164694d", Quorum: true, Voter: true,
			DatabaseSize: 64 << 20, DatabaseInUse: 3 << 20, Quota: 128 << 20, Problem: problem, LeaderChanges: 2,
			Members: []*consensusv1.StoreMember{{Id: "8e9e05c52164694d", Name: "one"}},
		}
	})
}

// fail has a role of a node be in a state after it has failed with an exit code.
func (c *cluster) fail(id, role string, state hostv1.InstanceState, code int32, lines ...string) error {
	return c.report(id, role, &clusterv1.InstanceStatus{State: state, Reason: "it failed too often", LastFailure: failure(code, lines), InstanceId: id + "/" + role + "/1"})
}

func failure(code int32, lines []string) *clusterv1.Failure {
	return &clusterv1.Failure{
		Time: timestamppb.New(began.Add(30 * time.Second)), Cause: "the process ended by itself", ExitCode: proto.Int32(code), Lines: lines,
		Failures: 11, Budget: 10, Window: durationpb.New(10 * time.Minute), InstanceId: "1",
	}
}

// stopNode ends the local node's own API, and startNode serves it again.
func (c *cluster) stopNode() {
	c.mu.Lock()
	local := c.side.local
	c.mu.Unlock()
	local.Stop()
}

// startNode serves the local node's own API again where it was.
func (c *cluster) startNode() error { return c.serveLocal(c.side.socket) }

// untilFollowed waits until somebody follows a log or events.
func (c *cluster) untilFollowed(ctx context.Context) error {
	return c.until(ctx, func() bool { return c.side.followers > 0 })
}

// following counts a follower until the function that it returns is called.
func (c *cluster) following(follow bool) func() {
	if !follow {
		return func() {}
	}
	c.update(func() { c.side.followers++ })
	return func() { c.update(func() { c.side.followers-- }) }
}

func (n *nodeAPI) WatchEvents(request *nodev1.WatchEventsRequest, stream grpc.ServerStreamingServer[nodev1.WatchEventsResponse]) error {
	defer n.cluster.following(request.GetFollow())()
	last, first := request.GetAfter(), true
	send := func() error {
		var events []*nodev1.Event
		for _, event := range n.cluster.side.events {
			if event.GetSequence() > last {
				events = append(events, event)
			}
		}
		if tail := int(request.GetTail()); first && tail > 0 && tail < len(events) {
			events = events[len(events)-tail:]
		}
		first = false
		if len(events) == 0 {
			return nil
		}
		last = events[len(events)-1].GetSequence()
		return stream.Send(&nodev1.WatchEventsResponse{Events: events})
	}
	if !request.GetFollow() {
		n.cluster.mu.Lock()
		defer n.cluster.mu.Unlock()
		return send()
	}
	return n.cluster.watch(stream.Context(), send)
}

func (n *nodeAPI) ReadLog(request *nodev1.ReadLogRequest, stream grpc.ServerStreamingServer[nodev1.ReadLogResponse]) error {
	role := request.GetRole()
	if role == "nothing" {
		return status.Error(codes.NotFound, "role nothing has no log")
	}
	switch {
	case role == "fresh" && request.GetPrevious():
		return status.Error(codes.NotFound, "the log of role fresh keeps nothing of an earlier instance: leave --previous out")
	case request.GetPrevious():
		return stream.Send(&nodev1.ReadLogResponse{Data: []byte("what the former instance wrote\n")})
	case request.GetSince() != nil:
		return stream.Send(&nodev1.ReadLogResponse{Data: fmt.Appendf(nil, "since %s\n", request.GetSince().AsTime().Format(time.RFC3339))})
	}
	defer n.cluster.following(request.GetFollow())()
	sent, emptied, first := 0, 0, true
	send := func() error {
		lines := n.cluster.side.log(role)
		if now := n.cluster.side.emptied[role]; now != emptied {
			emptied = now
			if !first {
				sent = 0
			}
		}
		if tail := int(request.GetTail()); first && tail > 0 && tail < len(lines) {
			sent = len(lines) - tail
		}
		first = false
		if sent == len(lines) {
			return nil
		}
		data := strings.Join(lines[sent:], "\n") + "\n"
		sent = len(lines)
		return stream.Send(&nodev1.ReadLogResponse{Data: []byte(data)})
	}
	if !request.GetFollow() {
		n.cluster.mu.Lock()
		defer n.cluster.mu.Unlock()
		return send()
	}
	return n.cluster.watch(stream.Context(), send)
}

func (n *nodeAPI) RestartRole(ctx context.Context, request *nodev1.RestartRoleRequest) (*nodev1.RestartRoleResponse, error) {
	c, role := n.cluster, request.GetRole()
	if assignment(n.node.told.GetNode().GetRoles(), role) == nil {
		return nil, status.Errorf(codes.NotFound, "role %s is not one that this node should run", role)
	}
	response := &nodev1.RestartRoleResponse{}
	for _, instance := range n.node.status.GetInstances() {
		if instance.GetRole() == role && instance.GetPid() != 0 {
			response.InstanceId = instance.GetInstanceId()
		}
	}
	c.side.restarts++
	if request.GetDryRun() {
		return response, nil
	}
	return response, c.start(ctx, n.node, role, 1000+c.side.restarts)
}

func (n *nodeAPI) GetMetrics(context.Context, *nodev1.GetMetricsRequest) (*nodev1.GetMetricsResponse, error) {
	return &nodev1.GetMetricsResponse{Text: []byte("# TYPE reeve_role_restarts_total counter\nreeve_role_restarts_total{role=\"consensus\"} 0\n")}, nil
}

func (n *nodeAPI) RecoverStore(_ context.Context, request *nodev1.RecoverStoreRequest) (*nodev1.RecoverStoreResponse, error) {
	store := n.cluster.side.store
	switch {
	case store == nil:
		return nil, status.Error(codes.Unavailable, "no member of the store runs on this node")
	case strings.Contains(store.GetProblem(), "in use"):
		return nil, status.Error(codes.FailedPrecondition, "no room can be freed: user lighthouse has 120 MiB")
	case request.GetDryRun():
		return &nodev1.RecoverStoreResponse{}, nil
	}
	store.Problem = ""
	return &nodev1.RecoverStoreResponse{SizeBefore: store.GetDatabaseSize(), SizeAfter: store.GetDatabaseInUse()}, nil
}

// GetRole answers with the grants of the catalog, and a sandbox of a process that runs.
func (n *nodeAPI) GetRole(_ context.Context, request *nodev1.GetRoleRequest) (*nodev1.GetRoleResponse, error) {
	self := n.status()
	response := &nodev1.GetRoleResponse{}
	for _, instance := range self.GetNode().GetInstances() {
		if instance.GetRole() == request.GetRole() {
			response.Status = instance
		}
	}
	if response.Status == nil {
		return nil, status.Errorf(codes.NotFound, "role %s is not one that this node should run", request.GetRole())
	}
	for _, plugin := range n.node.told.GetPlugins() {
		for _, grants := range plugin.GetGrants() {
			if grants.GetRole() == request.GetRole() {
				response.Grants = grants
			}
		}
	}
	if user := response.GetGrants().GetConsensusUser(); user != "" {
		response.Usage = &consensusv1.UserUsage{ConsensusUser: user, Bytes: 64 << 20, BytesQuota: 256 << 20, Leases: 3, LeasesQuota: 1000}
	}
	if response.GetStatus().GetPid() == 0 {
		return response, nil
	}
	powers, err := remit.Of(response.GetGrants().GetGrants())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	data := "/var/lib/reeve/data/roles/" + request.GetRole()
	response.Sandbox = &nodev1.Sandbox{
		Tier: powers.Tier(), Uid: 1879048193, Gid: 1879048193, OwnUser: true, NoNewPrivileges: true, DeniedSystemCalls: []string{"mount", "module"},
		Reads: append([]string{"/etc", "/proc"}, powers.Read...), Writes: append([]string{data}, powers.Write...), Executes: powers.Execute,
		Listens: powers.Listen.Texts(), Connects: powers.Connect.Texts(), UnixSocketsOnly: powers.Listen.None() && powers.Connect.None(),
		OwnMounts: true, OwnIpc: true, MemoryBytes: 1 << 30, Processes: 512, CpuWeight: 100, OpenFiles: 4096,
		ControlGroups: []string{"/sys/fs/cgroup/memory/reeve/" + request.GetRole()}, Missing: self.GetNode().GetMissing(),
	}
	return response, nil
}

// ImportPlugin takes everything that begins with "plugin NAME" for the plugin of that name, with one role of the same name. Without more it asks for
// a ConsensusUser and a file; otherwise what follows says what it is and asks for: version=V, user=U, split=stop, cache, schema, gives-up=GROUP,
// role=ANOTHER (to which what follows belongs) and grant=NAME or grant=NAME:KEY=VALUE.
func (n *nodeAPI) ImportPlugin(stream grpc.ClientStreamingServer[nodev1.ImportPluginRequest, nodev1.ImportPluginResponse]) error {
	var data []byte
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		data = append(data, request.GetData()...)
	}
	fields := strings.Fields(string(data[:min(len(data), 1000)]))
	if len(fields) < 2 || fields[0] != "plugin" {
		return status.Error(codes.InvalidArgument, "it is not a plugin: it ended before the handshake")
	}
	name := fields[1]
	role := &rolev1.RoleManifest{Name: name, Summary: "A role for tests"}
	manifest := &rolev1.Manifest{Name: name, Version: "0.1.0", Protocols: []string{"reeve.role.v1"}, Roles: []*rolev1.RoleManifest{role}}
	if len(fields) == 2 {
		fields = append(fields, "user="+name, "grant=replace-file:path=/etc/"+name)
	}
	for _, field := range fields[2:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "version":
			manifest.Version = value
		case "user":
			role.ConsensusUser = value
		case "split":
			role.InSplit = rolev1.SplitBehaviour(rolev1.SplitBehaviour_value["SPLIT_BEHAVIOUR_"+strings.ToUpper(value)])
		case "stop":
			if grace, err := time.ParseDuration(value); err == nil {
				role.StopGrace = durationpb.New(grace)
			}
		case "cache":
			role.StartsFromCache = true
		case "schema":
			role.ConfigurationSchema = "{}"
		case "gives-up":
			role.GivesUp = append(role.GivesUp, value)
		case "role":
			role = &rolev1.RoleManifest{Name: value, Summary: "Another role"}
			manifest.Roles = append(manifest.Roles, role)
		case "grant":
			grant, parameter, narrowed := strings.Cut(value, ":")
			asked := &rolev1.Grant{Name: grant}
			if narrowed {
				parameter, value, _ := strings.Cut(parameter, "=")
				asked.Parameters = map[string]string{parameter: value}
			}
			role.Grants = append(role.Grants, asked)
		default:
			return status.Errorf(codes.InvalidArgument, "it says %q", field)
		}
	}
	return stream.SendAndClose(&nodev1.ImportPluginResponse{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(data)), Platform: "linux/amd64", Manifest: manifest})
}

func (n *nodeAPI) SetPeers(_ context.Context, request *nodev1.SetPeersRequest) (*nodev1.SetPeersResponse, error) {
	return &nodev1.SetPeersResponse{Peers: append([]string{"named.example.com"}, request.GetPeers()...)}, nil
}

func (n *nodeAPI) ReplaceOwner(_ context.Context, request *nodev1.ReplaceOwnerRequest) (*nodev1.ReplaceOwnerResponse, error) {
	if request.GetDryRun() {
		return &nodev1.ReplaceOwnerResponse{}, nil
	}
	response, err := n.cluster.ReplaceOwner(&clusterv1.ReplaceOwnerRequest{OwnerPublicKey: request.GetOwnerPublicKey(), Requester: "user 0"})
	return &nodev1.ReplaceOwnerResponse{WaitingNodes: response.GetWaitingNodes()}, err
}
