package usage

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mostDeleted is how many keys a request may delete: each takes etcd some ten microseconds, while everybody's writes wait.
const mostDeleted = int64(10_000)

// fewDeleted returns how many keys a request deletes, and refuses one that deletes more than may be deleted at once. Only who has more is looked at, and only as far as that: the
// deletes of all others together are not more.
func (c *Counter) fewDeleted(ctx context.Context, user string, request any) (keys int64, err error) {
	removes := deletes(request)
	c.mu.Lock()
	has, attached := c.account(user).stored.Keys, int64(0)
	if revoke, ok := request.(*pb.LeaseRevokeRequest); ok {
		attached = c.attached[revoke.GetID()]
	}
	c.mu.Unlock()
	if has <= mostDeleted || !slices.ContainsFunc(removes, func(r *pb.DeleteRangeRequest) bool { return len(r.GetRangeEnd()) > 0 }) {
		return attached, nil
	}
	looked, err := c.look(ctx, user)
	if err != nil {
		return 0, status.FromContextError(err).Err()
	}
	defer looked()
	for _, remove := range removes {
		r := read{key: remove.GetKey(), end: remove.GetRangeEnd()}
		if len(r.end) == 0 || !r.within(user) {
			continue // one key; etcd refuses what is another's
		}
		found, err := readPage(ctx, c.config.KV, r.key, r.end, mvcc.RangeOptions{Limit: mostDeleted - keys + 1, FastKeysOnly: true})
		if err != nil {
			return 0, status.FromContextError(err).Err()
		}
		if keys += int64(len(found.KVs)); keys > mostDeleted {
			return 0, status.Errorf(codes.ResourceExhausted, "consensus: the user %s deletes more than %d keys at once, which is the most: "+
				"delete in parts: list keys with a limit, and delete from the first to the last of them", user, mostDeleted)
		}
	}
	return keys, nil
}

// passedByDeletes is what a request counts for the keys that etcd passes where it deletes, and that were deleted before.
func (c *Counter) passedByDeletes(user string, request any) (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.account(user).gone()
	for _, remove := range deletes(request) {
		if len(remove.GetRangeEnd()) > 0 && (read{key: remove.GetKey(), end: remove.GetRangeEnd()}).within(user) {
			bytes += min(perVisit*gone, mostVisits)
		}
	}
	return bytes
}

// deletes are those of a request, in both branches of a transaction.
func deletes(request any) (all []*pb.DeleteRangeRequest) {
	switch request := request.(type) {
	case *pb.DeleteRangeRequest:
		return []*pb.DeleteRangeRequest{request}
	case *pb.TxnRequest:
		for _, op := range slices.Concat(request.GetSuccess(), request.GetFailure()) {
			if remove := op.GetRequestDeleteRange(); remove != nil {
				all = append(all, remove)
			}
			if nested := op.GetRequestTxn(); nested != nil {
				all = append(all, deletes(nested)...)
			}
		}
	}
	return all
}
