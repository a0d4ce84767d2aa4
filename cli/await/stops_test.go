package await_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/cli/await"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const stopping = hostv1.InstanceState_INSTANCE_STATE_STOPPING

func stops(role string, state hostv1.InstanceState, grace time.Duration) *clusterv1.InstanceStatus {
	instance := &clusterv1.InstanceStatus{Role: role, State: state, Pid: 7, InstanceId: "N/" + role + "/1"}
	if grace != 0 {
		instance.StopGrace = durationpb.New(grace)
	}
	return instance
}

func TestLongStops(t *testing.T) {
	gone := stops("gone", blocked, time.Minute)
	gone.Pid = 0
	got := await.LongStops([]*clusterv1.InstanceStatus{
		stops("usual", ready, 0), stops("quick", ready, time.Second), gone, stops("slow", ready, time.Minute), stops("slower", degraded, 2*time.Minute),
	})
	if want := 50*time.Second + 110*time.Second; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A wait is the longer where roles are stopped that take long, once for each.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := func(ctx context.Context, see func(await.Seen), _ func(error)) error {
			for n := 0; ; n++ {
				instances := []*clusterv1.InstanceStatus{stops("beacon", stopping, time.Minute), stops("other", ready, 5*time.Minute)}
				if n > 30 {
					instances = []*clusterv1.InstanceStatus{stops("store", stopping, 30*time.Second)}
				}
				if n%2 == 0 {
					see(await.Seen{Status: &nodev1.Status{Node: &clusterv1.NodeStatus{Instances: instances}}})
				} else {
					see(await.Seen{Node: &clusterv1.Node{Status: &clusterv1.NodeStatus{Instances: instances}}})
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Second):
				}
			}
		}
		began := time.Now()
		ctx, limit, cancel := await.NewLimit(t.Context(), 10*time.Second)
		defer cancel()
		_, err := await.For(ctx, "N", []await.Source{limit.Of(source)}, []await.Condition{&await.Role{Name: "beacon", State: await.Ready}}, &record{})
		if took, want := time.Since(began), 10*time.Second+50*time.Second+20*time.Second; took != want {
			t.Errorf("it waited for %s, want %s", took, want)
		}
		if err == nil || !strings.Contains(err.Error(), "in time") {
			t.Errorf("error %v", err)
		}
		_, _, cancel = await.NewLimit(t.Context(), time.Hour)
		cancel()
	})
}

// Where the machine keeps a role Blocked, what it requires is not the question.
func TestNextOfABlockedProcess(t *testing.T) {
	role := &await.Role{Name: "beacon", NodeID: "N", State: await.Ready, BlockedIsFinal: true}
	instance := stops("beacon", blocked, 0)
	instance.Reason = "the machine has no lamp"
	verdict := role.See(await.Seen{Status: &nodev1.Status{Node: &clusterv1.NodeStatus{Instances: []*clusterv1.InstanceStatus{instance}}}})
	if verdict.Outcome != await.Doubtful || verdict.Text != "role beacon is Blocked: the machine has no lamp" || !strings.Contains(verdict.Next, "goes on by itself") {
		t.Errorf("%+v", verdict)
	}
}
