package server_test

import (
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// A node that reports without a pause has the curator write for it only so often, whatever connections it makes. Another node reports meanwhile, and it too after a while.
func TestReportsOfANode(t *testing.T) {
	var now atomic.Pointer[time.Time]
	set := func(to time.Time) { now.Store(&to) }
	set(time.Now())
	c := newClusterOn(t, etcd, func(config *server.Config) { config.Now = func() time.Time { return *now.Load() } })
	other := c.asOther(c.secondNode())
	report := func(as clusterv1.NodeServiceClient) error {
		_, err := as.ReportStatus(inTime(t), &clusterv1.ReportStatusRequest{Status: &clusterv1.NodeStatus{}})
		return err
	}
	hostile := c.asNode()
	made := 0
	err := report(hostile)
	for ; err == nil && made < 500; err = report(hostile) {
		made++
	}
	wantCode(t, err, codes.ResourceExhausted, c.id, "reports its status", "wait")
	if made < 64 || made > 128 {
		t.Errorf("it reports %d times at once", made)
	}
	wantCode(t, report(c.asNode()), codes.ResourceExhausted, c.id)
	if err := report(other); err != nil {
		t.Errorf("another node: %v", err)
	}
	set(now.Load().Add(time.Second))
	if err := report(hostile); err != nil {
		t.Errorf("a second later: %v", err)
	}
}

// A node that opens streams without an end has only the newest of them, on all of its connections. Another node has its own.
func TestStreamsOfANode(t *testing.T) {
	c := newCluster(t)
	key := c.secondNode()
	other := watch(t, c.asOther(key))
	present := func(*clusterv1.WatchResponse) bool { return true }
	other.await("the present state", present)
	first := keepAlive(t, c.asNode())
	first.beats()
	for range 8 {
		watch(t, c.asNode()).await("the present state", present)
	}
	_, err := first.tries()
	wantCode(t, err, codes.ResourceExhausted, c.id, "8 streams", "the oldest")
	last := keepAlive(t, c.asNode())
	last.beats()
	if _, err := c.asOwner().AddRole(inTime(t), &clusterv1.AddRoleRequest{NodeId: identity.NodeID(public(key)), Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	other.await("what is new", func(r *clusterv1.WatchResponse) bool { return len(r.GetNode().GetRoles()) == 1 })
}
