package fakecluster

import (
	"context"
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
)

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

// DebugSocket is where a process waits to be debugged.
const DebugSocket = "/tmp/debug/plugin.sock"

// firstLog is what every role has written before anything else.
var firstLog = []string{"one", "two", "three \x1b[2J<&>"}

// AddEvent has something happen on the nodes.
func (c *Cluster) AddEvent(severity nodev1.Severity, kind, role, message string) {
	c.Update(func() {
		c.side.events = append(c.side.events, &nodev1.Event{
			Sequence: uint64(len(c.side.events) + 1), Time: timestamppb.New(Began.Add(time.Duration(len(c.side.events)) * time.Second)),
			Severity: severity, Type: kind, Role: role, Message: message,
		})
	})
}

// AddLog has a role write a line.
func (c *Cluster) AddLog(role, line string) {
	c.Update(func() { c.side.setLog(role, append(slices.Clone(c.side.log(role)), line)) })
}

// EmptyLog takes away what a role wrote.
func (c *Cluster) EmptyLog(role string) {
	c.Update(func() {
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

// SetStore gives the nodes a member of the store, with what keeps it from its work.
func (c *Cluster) SetStore(problem string) {
	c.Update(func() {
		c.side.store = &consensusv1.StoreStatus{
			Formed: true, ClusterId: c.id, MemberId: "8e9e05c52164694d", LeaderId: "8e9e05c52164694d", Quorum: true, Voter: true,
			DatabaseSize: 64 << 20, DatabaseInUse: 3 << 20, Quota: 128 << 20, Problem: problem, LeaderChanges: 2,
			Members: []*consensusv1.StoreMember{{Id: "8e9e05c52164694d", Name: "one"}},
		}
	})
}

// Fail has a role of a node be in a state after it has failed with an exit code.
func (c *Cluster) Fail(id, role string, state hostv1.InstanceState, code int32, lines ...string) error {
	return c.Report(id, role, &clusterv1.InstanceStatus{State: state, Reason: "it failed too often", LastFailure: failure(code, lines), InstanceId: id + "/" + role + "/1"})
}

func failure(code int32, lines []string) *clusterv1.Failure {
	return &clusterv1.Failure{
		Time: timestamppb.New(Began.Add(30 * time.Second)), Cause: "the process ended by itself", ExitCode: proto.Int32(code), Lines: lines,
		Failures: 11, Budget: 10, Window: durationpb.New(10 * time.Minute), InstanceId: "1",
	}
}

// StopNode ends the local node's own API, and StartNode serves it again.
func (c *Cluster) StopNode() {
	c.mu.Lock()
	local := c.side.local
	c.mu.Unlock()
	local.Stop()
}

// StartNode serves the local node's own API again where it was.
func (c *Cluster) StartNode() error { return c.ServeLocal(c.side.socket) }

// UntilFollowed waits until somebody follows a log or events.
func (c *Cluster) UntilFollowed(ctx context.Context) error {
	return c.until(ctx, func() bool { return c.side.followers > 0 })
}

// following counts a follower until the function that it returns is called.
func (c *Cluster) following(follow bool) func() {
	if !follow {
		return func() {}
	}
	c.Update(func() { c.side.followers++ })
	return func() { c.Update(func() { c.side.followers-- }) }
}

func (n *node) WatchEvents(request *nodev1.WatchEventsRequest, stream grpc.ServerStreamingServer[nodev1.WatchEventsResponse]) error {
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

func (n *node) ReadLog(request *nodev1.ReadLogRequest, stream grpc.ServerStreamingServer[nodev1.ReadLogResponse]) error {
	role := request.GetRole()
	if role == "nothing" {
		return status.Error(codes.NotFound, "role nothing has no log")
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

// DebugRole is answered as on a node whose parameters do not allow it, but for the one socket that a process of this cluster listens on.
func (n *node) DebugRole(ctx context.Context, request *nodev1.DebugRoleRequest) (*nodev1.DebugRoleResponse, error) {
	if request.GetSocket() != DebugSocket {
		return nil, status.Error(codes.FailedPrecondition, "this node does not allow debugging of roles")
	}
	restarted, err := n.RestartRole(ctx, &nodev1.RestartRoleRequest{Role: request.GetRole(), DryRun: true})
	if err == nil && !request.GetDryRun() {
		id := n.status().GetNodeId()
		node, err := n.cluster.find(id)
		if err != nil {
			return nil, err
		}
		report(node, request.GetRole(), &clusterv1.InstanceStatus{
			State: hostv1.InstanceState_INSTANCE_STATE_READY, Pid: 4711, Debug: true, InstanceId: id + "/" + request.GetRole() + "/2000",
		})
	}
	return &nodev1.DebugRoleResponse{Pid: 4711, InstanceId: restarted.GetInstanceId()}, err
}

func (n *node) RestartRole(_ context.Context, request *nodev1.RestartRoleRequest) (*nodev1.RestartRoleResponse, error) {
	c, role := n.cluster, request.GetRole()
	node, err := c.find(n.status().GetNodeId())
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(node.GetRecord().GetRoles(), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == role }) {
		return nil, status.Errorf(codes.NotFound, "role %s is not one that this node should run", role)
	}
	response := &nodev1.RestartRoleResponse{}
	for _, instance := range node.GetStatus().GetInstances() {
		if instance.GetRole() == role && instance.GetPid() != 0 {
			response.InstanceId = instance.GetInstanceId()
		}
	}
	c.side.restarts++
	if !request.GetDryRun() {
		c.begin(node, role, 1000+c.side.restarts)
	}
	return response, nil
}

// usualOutcome are the states of a role for which no others were set.
func usualOutcome() []*clusterv1.InstanceStatus {
	return []*clusterv1.InstanceStatus{
		{State: hostv1.InstanceState_INSTANCE_STATE_STARTING},
		{State: hostv1.InstanceState_INSTANCE_STATE_READY, Pid: 4711},
	}
}

func (n *node) GetMetrics(context.Context, *nodev1.GetMetricsRequest) (*nodev1.GetMetricsResponse, error) {
	return &nodev1.GetMetricsResponse{Text: []byte("# TYPE reeve_role_restarts_total counter\nreeve_role_restarts_total{role=\"consensus\"} 0\n")}, nil
}

func (n *node) RecoverStore(_ context.Context, request *nodev1.RecoverStoreRequest) (*nodev1.RecoverStoreResponse, error) {
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
