package server_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// publisher is the status of a node whose roles publish some values of the largest size each.
func publisher(id string, values int, roles ...string) *clusterv1.NodeStatus {
	status := &clusterv1.NodeStatus{NodeId: id}
	for _, role := range roles {
		instance := &clusterv1.InstanceStatus{Role: role, State: hostv1.InstanceState_INSTANCE_STATE_READY, Values: make(map[string]string)}
		for n := range values {
			instance.Values[fmt.Sprint(n)] = strings.Repeat("v", limits.Value)
		}
		status.Instances = append(status.Instances, instance)
	}
	return status
}

// What roles publish, on however many nodes, keeps nobody from the directory: a node that has more than a node may is refused, what older curators took is left out, and what is left comes
// in as many messages as it takes.
func TestADirectoryOfAnySizeIsSent(t *testing.T) {
	c := newCluster(t)
	report := func(values int, roles ...string) error {
		_, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: publisher(c.id, values, roles...)})
		return err
	}
	wantCode(t, report(8, "api"), codes.InvalidArgument, "status.instances[0]", "at most 32768 fit")
	wantCode(t, report(7, "api", "store", "hostsfile"), codes.InvalidArgument, "status", "together", "at most 65536 fit")
	if err := report(7, "api", "store"); err != nil {
		t.Error(err)
	}
	const nodes = 44
	roles := []string{"first", "second", "third"}
	c.update(func(*store.State) *store.Change {
		change := new(store.Change)
		for range nodes {
			key := public(newKey(t))
			node := &clusterv1.NodeRecord{Id: identity.NodeID(key), PublicKey: key, State: stateUp, Generation: 1}
			for _, role := range roles {
				node.Roles = append(node.Roles, &clusterv1.RoleAssignment{Role: role, Generation: 1})
			}
			change.Nodes = append(change.Nodes, node)
		}
		return change
	})
	for id := range mustRead(t, c).Nodes {
		if id == c.id {
			continue
		}
		status := publisher(id, 30, roles...)
		status.Instances[2].Values = map[string]string{"modest": "value"}
		value, err := proto.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.client().Put(t.Context(), "status/"+id, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	watch, err := c.asNode().Watch(inTime(t), &clusterv1.WatchRequest{Differences: true}, grpc.MaxCallRecvMsgSize(limits.Message))
	if err != nil {
		t.Fatal(err)
	}
	seen, parts := make(map[string]*hostv1.DirectoryNode), 0
	for modest := 0; modest < nodes; {
		response, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		parts++
		for _, node := range append(response.GetDirectory().GetNodes(), response.GetDifference().GetNodes()...) {
			seen[node.GetNodeId()] = node
		}
		if size := proto.Size(response); size > 2<<20 {
			t.Errorf("a message has %d bytes", size)
		}
		modest = 0
		for _, node := range seen {
			if len(node.GetRoles()) == 3 && node.GetRoles()[2].GetValues()["modest"] == "value" && len(node.GetRoles()[0].GetValues()) == 0 {
				modest++
			}
		}
	}
	t.Logf("%d messages", parts)
	// And to one that comes now.
	again, err := c.asNode().Watch(inTime(t), &clusterv1.WatchRequest{Differences: true}, grpc.MaxCallRecvMsgSize(limits.Message))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; {
		response, err := again.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if n += len(response.GetDirectory().GetNodes()) + len(response.GetDifference().GetNodes()); !response.GetMore() {
			if n != nodes+1 {
				t.Errorf("%d nodes", n)
			}
			break
		}
	}
}

func mustRead(t *testing.T, c *cluster) *store.State {
	t.Helper()
	state, err := store.New(store.Config{Client: c.client(), AnswerWithin: patience}).ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}
