package door

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
)

// etcd looks at the keys of a lease, not at whose it is: whoever knows the ID of one without keys may revoke it, keep it alive or put keys on it, and so
// keep its owner from it. So a lease carries its user's number in its ID, and is for that user only.

// owns reports whether a lease is a user's.
func owns(served Store, user string, lease int64) bool {
	number := numbers.OfLease(lease)
	return number != 0 && number == served.Number(user)
}

// ownLeases reports whether all leases that a request names are the user's.
func ownLeases(served Store, user string, request any) bool {
	switch request := request.(type) {
	case *pb.PutRequest:
		return request.GetLease() == 0 || owns(served, user, request.GetLease())
	case *pb.TxnRequest:
		return ownLeasesOf(served, user, request.GetSuccess()) && ownLeasesOf(served, user, request.GetFailure())
	case *pb.LeaseRevokeRequest:
		return owns(served, user, request.GetID())
	case *pb.LeaseTimeToLiveRequest:
		return owns(served, user, request.GetID())
	}
	return true
}

func ownLeasesOf(served Store, user string, ops []*pb.RequestOp) bool {
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil && !ownLeases(served, user, op.GetRequestPut()):
			return false
		case op.GetRequestTxn() != nil && !ownLeases(served, user, op.GetRequestTxn()):
			return false
		}
	}
	return true
}

// grantAttempts bounds how often another ID is tried in the place of one that there is already: with 40 random bits, the second is next to never needed.
const grantAttempts = 4

// grantLease grants a lease under the ID that the user chose from its own, or else under one that is chosen here.
func grantLease(ctx context.Context, served Store, user string, request *pb.LeaseGrantRequest, handle grpc.UnaryHandler) (answer any, err error) {
	if request.GetID() != 0 {
		if !owns(served, user, request.GetID()) {
			return nil, errDenied
		}
		return admitted(ctx, served, user, request, handle)
	}
	number := served.Number(user)
	if number == 0 {
		return nil, store.ErrFull // there was no room for it
	}
	for range grantAttempts {
		request.ID = numbers.NewLease(number)
		answer, err = admitted(ctx, served, user, request, handle)
		if rpctypes.Error(err) != rpctypes.ErrLeaseExist {
			break
		}
	}
	return answer, err
}

// keepingAlive is a call of LeaseKeepAlive, which ends with the first message that names a lease of another.
type keepingAlive struct {
	grpc.ServerStream
	served Store
	user   string
	caller *caller // nil: it is not bounded
}

func (k keepingAlive) RecvMsg(message any) error {
	if err := k.ServerStream.RecvMsg(message); err != nil {
		return err
	}
	request, ok := message.(*pb.LeaseKeepAliveRequest)
	switch {
	case !ok || !owns(k.served, k.user, request.GetID()):
		return errDenied
	case k.caller != nil:
		return k.caller.pays(k.Context(), k.caller.beats, k.served.Beat(request.GetID()))
	}
	return nil
}
