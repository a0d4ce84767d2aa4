package answer_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// A node that is removed while it calls is told so as it is by every other call: by its tombstone.
func TestRemovedUnderACall(t *testing.T) {
	tombstone := &clusterv1.NodeRecord{Id: "reeve-1", State: clusterv1.NodeState_NODE_STATE_DECOMMISSIONED, Removal: &clusterv1.Removal{By: "owner", Deleted: true}}
	told := status.Convert(answer.Error(fmt.Errorf("report: %w", &store.RemovedError{Node: tombstone})))
	if told.Code() != codes.PermissionDenied || len(told.Details()) != 1 {
		t.Fatalf("%v", told.Proto())
	}
	if removed, ok := told.Details()[0].(*clusterv1.NodeRemoved); !ok || removed.GetNodeId() != "reeve-1" {
		t.Errorf("the detail is %v", told.Details()[0])
	}
}

// Who asks for a change that the store was away for is told whether another curator may be asked for it.
func TestUnbegunChange(t *testing.T) {
	for _, unbegun := range []bool{false, true} {
		told := status.Convert(answer.Error(&store.UnavailableError{Doing: "read the cluster's records", Err: errors.New("away"), Unbegun: unbegun}))
		if told.Code() != codes.Unavailable || (len(told.Details()) == 1) != unbegun {
			t.Errorf("unbegun: %t: %v", unbegun, told.Proto())
		}
	}
}
