package server_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
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

// What roles publish, on however many nodes, keeps nobody from the directory: what a node has more than a node may is left out, and its report is taken all the same, since an older core knows no
// bound. What is left comes in as many messages as it takes, to who takes several.
func TestADirectoryOfAnySizeIsSent(t *testing.T) {
	c := newCluster(t)
	report := func(values int, roles ...string) error {
		_, err := c.asNode().ReportStatus(t.Context(), &clusterv1.ReportStatusRequest{Status: publisher(c.id, values, roles...)})
		return err
	}
	if err := report(30, "api", "store"); err != nil {
		t.Errorf("the node is silent for what its roles publish: %v", err)
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
		status.Instances[1].Values = publisher(id, 7, "second").GetInstances()[0].GetValues()
		status.Instances[2].Values = map[string]string{"modest": "value"}
		value, err := proto.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.client().Put(t.Context(), "status/"+id, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	watch, err := c.asNode().Watch(inTime(t), &clusterv1.WatchRequest{Differences: true, Parts: true}, grpc.MaxCallRecvMsgSize(limits.Message))
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
			if len(node.GetRoles()) == 3 && node.GetRoles()[2].GetValues()["modest"] == "value" && len(node.GetRoles()[1].GetValues()) == 7 && len(node.GetRoles()[0].GetValues()) == 0 {
				modest++
			}
		}
	}
	t.Logf("%d messages", parts)
	// And to those that come now, of which an older one takes the first message for all of it.
	for _, takesParts := range []bool{true, false} {
		again, err := c.asNode().Watch(inTime(t), &clusterv1.WatchRequest{Differences: true, Parts: takesParts}, grpc.MaxCallRecvMsgSize(limits.Message))
		if err != nil {
			t.Fatal(err)
		}
		n, messages := 0, 0
		for more := true; more; messages++ {
			response, err := again.Recv()
			if err != nil {
				t.Fatal(err)
			}
			n += len(response.GetDirectory().GetNodes()) + len(response.GetDifference().GetNodes())
			if more = response.GetMore(); more != (response.GetNode() == nil) {
				t.Errorf("message %d: there is more: %t, and the node's record is %v", messages, more, response.GetNode())
			}
		}
		if n != nodes+1 || (messages > 1) != takesParts {
			t.Errorf("%d nodes in %d messages", n, messages)
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
