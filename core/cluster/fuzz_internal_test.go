package cluster

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Whatever the roles of a node state, its report is one that the cluster takes, and the status itself stays as it is.
func FuzzFit(f *testing.F) {
	seed := &clusterv1.NodeStatus{NodeId: "n1", Version: "1", Problem: strings.Repeat("p", 5000), Addresses: []string{"10.0.0.1"}, Instances: []*clusterv1.InstanceStatus{{
		Role: "a", Reason: strings.Repeat("r", 5000), Values: map[string]string{"v": "x"}, LastFailure: &clusterv1.Failure{Cause: "c", Lines: []string{"l"}},
	}}, Storage: &clusterv1.StorageStatus{
		Kind: "fscrypt", Problem: strings.Repeat("p", 5000), Location: "/" + strings.Repeat("l", 4000), Weaknesses: []string{strings.Repeat("w", 5000)},
		Sources: []*clusterv1.CukSource{{Name: "tpm", Reason: strings.Repeat("s", 5000)}},
	}}
	encoded, err := proto.Marshal(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded, uint32(0))
	f.Add(encoded, uint32(limits.Report))
	f.Add([]byte{}, uint32(1))
	f.Fuzz(func(t *testing.T, encoded []byte, large uint32) {
		status := &clusterv1.NodeStatus{}
		if err := proto.Unmarshal(encoded, status); err != nil || len(status.GetInstances()) > limits.ReportedInstances || proto.Size(status) > limits.Report/2 {
			t.Skip() // the node itself does not have more
		}
		status.ProtoReflect().SetUnknown(nil)
		for n, instance := range status.GetInstances() {
			if n%2 == 0 && instance != nil {
				if instance.Values == nil {
					instance.Values = make(map[string]string)
				}
				instance.Values["large"] = strings.Repeat("x", int(large%(2*limits.Report)))
			}
		}
		before := proto.CloneOf(status)
		fitted := fit(status, limits.ReportedPublished)
		if !proto.Equal(before, status) {
			t.Error("the status was changed")
		}
		now, given := fitted.GetStorage(), status.GetStorage()
		if now.GetKind() != given.GetKind() || now.GetState() != given.GetState() || now.GetEncrypted() != given.GetEncrypted() || len(now.GetSources()) != len(given.GetSources()) {
			t.Errorf("the state of the volume is %v, and was %v", now, given)
		}
		if fitted.GetProblem() != text(status.GetProblem()) {
			t.Errorf("what is wrong with the node is %q", fitted.GetProblem())
		}
		if !fits(fitted, limits.ReportedPublished) {
			t.Errorf("a report of %d bytes for a status of %d", proto.Size(fitted), proto.Size(status))
		}
	})
}
