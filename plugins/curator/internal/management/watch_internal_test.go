package management

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// What is shown of a node is compared without what is large, where that is the same record and the same status.
func TestSameNode(t *testing.T) {
	record, status := &clusterv1.NodeRecord{Id: "a", Labels: map[string]string{"k": "v"}}, &clusterv1.NodeStatus{Version: "1"}
	node := &clusterv1.Node{Record: record, Status: status, Healthy: true, Problem: "p", Store: &clusterv1.StoreMembership{Step: "s"}}
	for name, test := range map[string]struct {
		other *clusterv1.Node
		same  bool
	}{
		"another snapshot":   {&clusterv1.Node{Record: record, Status: status, Healthy: true, Problem: "p", Store: &clusterv1.StoreMembership{Step: "s"}}, true},
		"written alike":      {proto.CloneOf(node), true},
		"another record":     {&clusterv1.Node{Record: &clusterv1.NodeRecord{Id: "a"}, Status: status, Healthy: true, Problem: "p", Store: node.GetStore()}, false},
		"another status":     {&clusterv1.Node{Record: record, Status: &clusterv1.NodeStatus{}, Healthy: true, Problem: "p", Store: node.GetStore()}, false},
		"not healthy":        {&clusterv1.Node{Record: record, Status: status, Problem: "p", Store: node.GetStore()}, false},
		"another problem":    {&clusterv1.Node{Record: record, Status: status, Healthy: true, Store: node.GetStore()}, false},
		"no member any more": {&clusterv1.Node{Record: record, Status: status, Healthy: true, Problem: "p"}, false},
	} {
		if got := same(node, test.other); got != test.same {
			t.Errorf("%s: %t", name, got)
		}
	}
	for n := range 1000 {
		record.Labels[fmt.Sprint(n)] = "v"
	}
	if allocated := testing.AllocsPerRun(10, func() { same(node, &clusterv1.Node{Record: record, Status: status}) }); allocated > 100 {
		t.Errorf("it takes %v allocations to compare a record with itself", allocated)
	}
}
