package nodes

import (
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// Whatever a node reports, what is let through can be shown to every other node.
func FuzzNodeStatus(f *testing.F) {
	encoded, err := proto.Marshal(&clusterv1.NodeStatus{NodeId: "n1", Addresses: []string{"10.0.0.1", "::1"}, Instances: []*clusterv1.InstanceStatus{{
		Role: "lamp", State: hostv1.InstanceState_INSTANCE_STATE_READY, Values: map[string]string{"v": "x"}, LastFailure: &clusterv1.Failure{Cause: "c", Lines: []string{"l"}},
	}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		status := &clusterv1.NodeStatus{}
		if err := proto.Unmarshal(encoded, status); err != nil {
			t.Skip()
		}
		if problems := checkStatus("status", status); len(problems) > 0 {
			for _, problem := range problems {
				if problem.Field == "" || problem.Message == "" {
					t.Errorf("problem %+v", problem)
				}
			}
			return
		}
		if proto.Size(status) > limits.Report || len(status.GetInstances()) > limits.ReportedInstances {
			t.Errorf("a status of %d bytes and %d instances was let through", proto.Size(status), len(status.GetInstances()))
		}
		for _, address := range status.GetAddresses() {
			if _, err := netip.ParseAddr(address); err != nil {
				t.Errorf("the address %q was let through", address)
			}
		}
	})
}
