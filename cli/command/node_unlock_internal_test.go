package command

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// unlocking is the API of a node that answers calls of Unlock with these errors, one after another, and whose volume is in these states after each.
type unlocking struct {
	nodev1.NodeServiceClient
	answers []error
	after   []clusterv1.StorageState
	calls   int
}

func (u *unlocking) Unlock(context.Context, *nodev1.UnlockRequest, ...grpc.CallOption) (*nodev1.UnlockResponse, error) {
	u.calls++
	if err := u.answers[u.calls-1]; err != nil {
		return nil, err
	}
	return &nodev1.UnlockResponse{Notes: []string{"a note"}}, nil
}

func (u *unlocking) WatchStatus(context.Context, *nodev1.WatchStatusRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[nodev1.WatchStatusResponse], error) {
	return volumeIs{state: u.after[u.calls-1]}, nil
}

// volumeIs is a stream of the status of a node whose volume is in a state.
type volumeIs struct {
	grpc.ServerStreamingClient[nodev1.WatchStatusResponse]
	state clusterv1.StorageState
}

func (v volumeIs) Recv() (*nodev1.WatchStatusResponse, error) {
	return &nodev1.WatchStatusResponse{Status: &nodev1.Status{Storage: &clusterv1.StorageStatus{State: v.state}}}, nil
}

// TestUnlockWithoutAnAnswer loses answers of a node that serves its socket anew. What counts is the volume.
func TestUnlockWithoutAnAnswer(t *testing.T) {
	away := status.Error(codes.Unavailable, "the connection was lost")
	for name, test := range map[string]struct {
		answers []error
		after   []clusterv1.StorageState
		notes   []string
		code    fault.Code
	}{
		"answered":                    {[]error{nil}, nil, []string{"a note"}, fault.OK},
		"opened, and the answer lost": {[]error{away}, []clusterv1.StorageState{volumeOpen}, nil, fault.OK},
		"not heard at first":          {[]error{away, nil}, []clusterv1.StorageState{volumeLocked}, []string{"a note"}, fault.OK},
		"refused at last":             {[]error{away, status.Error(codes.InvalidArgument, "not of this volume")}, []clusterv1.StorageState{volumeSealed}, nil, fault.Refused},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &unlocking{answers: test.answers, after: test.after}
			notes, err := sendUnlock(t.Context(), api, "reeve-1", nil)
			if !slices.Equal(notes, test.notes) || fault.CodeOf(err) != test.code || api.calls != len(test.answers) {
				t.Errorf("%s: after %d calls: %q, %v", name, api.calls, notes, err)
			}
		})
	}
}
