package server_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// What a node has said that is no member any more says nothing about a version: it may be there from before such reports were refused.
func TestAVersionIsNotJudgedByNodesThatAreGone(t *testing.T) {
	c := newCluster(t)
	plain := func(version string) *rolev1.Manifest {
		manifest := plugin("plain", &rolev1.RoleManifest{Name: "plain"})
		manifest.Version = version
		return manifest
	}
	c.offer(plain("1.0.0"), digestOf("a"))
	c.offer(plain("1.1.0"), digestOf("b"))
	gone := c.nodeWith()
	c.setState(gone, stateDecommissioned)
	status, err := proto.Marshal(&clusterv1.NodeStatus{NodeId: gone, Instances: []*clusterv1.InstanceStatus{{
		Role: "plain", State: hostv1.InstanceState_INSTANCE_STATE_READY, Plugin: "plain",
		RolledBack: &clusterv1.RolledBack{Version: "1.1.0", Digest: digestOf("b")["linux/amd64"]},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client().Put(t.Context(), "status/"+gone, string(status)); err != nil {
		t.Fatal(err)
	}
	c.await(gone, "what it said", func(node *clusterv1.Node) bool { return len(node.GetStatus().GetInstances()) == 1 })
	if record := c.offer(plain("1.2.0"), digestOf("c")); record.GetPrevious().GetVersion() != "1.1.0" {
		t.Errorf("the next one goes back to %s, and no node has said that 1.1.0 failed but one that is gone", spell(record))
	}
}
