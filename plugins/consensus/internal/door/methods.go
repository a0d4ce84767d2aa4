package door

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// errDenied is what a user is told that calls what is not for it, or uses the lease of another: etcd's own error for it, which its clients know.
var errDenied = rpctypes.ErrGRPCPermissionDenied

// methods is all that a ConsensusUser may call, whichever it is: the cluster user needs no more than the others. What a later etcd brings is not among them.
var methods = map[string]bool{
	pb.KV_Range_FullMethodName:              true,
	pb.KV_Put_FullMethodName:                true,
	pb.KV_DeleteRange_FullMethodName:        true,
	pb.KV_Txn_FullMethodName:                true,
	pb.Watch_Watch_FullMethodName:           true,
	pb.Lease_LeaseGrant_FullMethodName:      true,
	pb.Lease_LeaseRevoke_FullMethodName:     true,
	pb.Lease_LeaseKeepAlive_FullMethodName:  true,
	pb.Lease_LeaseTimeToLive_FullMethodName: true,
	pb.Lease_LeaseLeases_FullMethodName:     true,
	// Kubernetes asks for the version before it uses what is newer.
	pb.Maintenance_Status_FullMethodName: true,
}

// errNoRangeStream says that RangeStream is not offered. What etcd reads for it waits in memory before anything can bound it: ten keys at first, later as many as there are. Told
// so with this code, the API server of Kubernetes reads in pages.
var errNoRangeStream = status.Error(codes.Unimplemented, "consensus: RangeStream is not offered: use Range, with a limit")

// mayCall refuses what is not to be called.
func mayCall(served Store, user, method string) error {
	switch {
	case method == consensusv1.SnapshotService_TakeSnapshot_FullMethodName && user == served.ClusterUser():
		return nil
	case methods[method]:
		return nil
	case method == pb.KV_RangeStream_FullMethodName:
		return errNoRangeStream
	}
	return errDenied
}

// statusFor answers Status as if the user had a store of its own: what it has and may have stand for the sizes of the database. How far the members' log is
// and what is wrong with the store is left out.
func statusFor(ctx context.Context, served Store, user string, request *pb.StatusRequest, handle grpc.UnaryHandler) (any, error) {
	answer, err := askAgain(ctx, request, handle)
	if err != nil {
		return nil, err
	}
	full, ok := answer.(*pb.StatusResponse)
	if !ok {
		return nil, errDenied
	}
	usage := served.UsageOf(user)
	return &pb.StatusResponse{
		Header: full.GetHeader(), Version: full.GetVersion(), StorageVersion: full.GetStorageVersion(), Leader: full.GetLeader(), IsLearner: full.GetIsLearner(),
		DbSize: usage.GetBytes(), DbSizeInUse: usage.GetBytes(), DbSizeQuota: usage.GetBytesQuota(),
	}, nil
}
