package usage

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc/status"
)

// most is the most that operations may add, by themselves: no look into the store is needed for it.
func most(ops []*pb.RequestOp) (bytes int64) {
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil:
			bytes += sizeOfPut(op.GetRequestPut())
		case op.GetRequestTxn() != nil:
			bytes += mostOfTxn(op.GetRequestTxn())
		}
	}
	return bytes
}

// mostOfTxn is that of the branch which adds more.
func mostOfTxn(txn *pb.TxnRequest) int64 { return max(most(txn.GetSuccess()), most(txn.GetFailure())) }

func sizeOfPut(put *pb.PutRequest) int64 { return int64(len(put.GetKey()) + len(put.GetValue())) }

const (
	// deletedKeys is how many keys of a range that is deleted within a transaction are looked at: what the others would give back is not reckoned with.
	deletedKeys = 64
	// lookedAt is how many operations of a request are looked at, since writers wait meanwhile: more than etcd lets a transaction have, apart from nested
	// ones. What follows is reckoned with as if nothing was there before.
	lookedAt = 512
)

// growth is how much larger a request leaves what a user has, as the store is now; a transaction by the branch that leaves more, of bytes and of keys each. etcd refuses a
// transaction that touches a key twice, so that operations may be looked at one by one. Only the user's own keys are looked at: etcd refuses what touches
// others, and whether it would have fitted is nobody's business.
//
// What is read for it counts as what a transaction reads that writes, and one request of a user is looked at at a time: who has used up what it may could have its largest values read all the time.
func (c *Counter) growth(ctx context.Context, user string, request any) (growth Total, err error) {
	c.mu.Lock()
	turn := &c.account(user).sizing
	c.mu.Unlock()
	looked, err := c.turn(ctx, turn)
	if err != nil {
		return Total{}, status.FromContextError(err).Err()
	}
	defer looked()
	if err := c.paid(ctx, user); err != nil {
		return Total{}, err
	}
	present := reader{kv: c.config.KV, user: user, left: lookedAt}
	defer func() {
		present.end()
		c.owe(user, present.read/perApplied)
	}()
	switch request := request.(type) {
	case *pb.PutRequest:
		growth, err = present.growthOfPut(ctx, request)
	case *pb.TxnRequest:
		growth, err = present.growthOfTxn(ctx, request)
	}
	if err != nil {
		return Total{}, status.FromContextError(err).Err()
	}
	return growth, nil
}

func (r *reader) growthOfTxn(ctx context.Context, txn *pb.TxnRequest) (Total, error) {
	success, err := r.growthOf(ctx, txn.GetSuccess())
	if err != nil {
		return Total{}, err
	}
	failure, err := r.growthOf(ctx, txn.GetFailure())
	return Total{Bytes: max(success.Bytes, failure.Bytes), Keys: max(success.Keys, failure.Keys)}, err
}

func (r *reader) growthOf(ctx context.Context, ops []*pb.RequestOp) (total Total, err error) {
	for _, op := range ops {
		var one Total
		switch {
		case op.GetRequestPut() != nil:
			one, err = r.growthOfPut(ctx, op.GetRequestPut())
		case op.GetRequestDeleteRange() != nil:
			one, err = r.growthOfDelete(ctx, op.GetRequestDeleteRange())
		case op.GetRequestTxn() != nil:
			one, err = r.growthOfTxn(ctx, op.GetRequestTxn())
		}
		if err != nil {
			return Total{}, err
		}
		total = total.plus(one)
	}
	return total, nil
}

func (r *reader) growthOfPut(ctx context.Context, put *pb.PutRequest) (Total, error) {
	added := Total{Bytes: sizeOfPut(put), Keys: 1}
	if !r.mayLook(put.GetKey()) {
		return added, nil
	}
	former, err := r.get(ctx, put.GetKey(), 0)
	if err != nil {
		return Total{}, err
	}
	if former != nil {
		added = added.plus(Total{Bytes: -sizeOf(former), Keys: -1})
	}
	return added, nil
}

func (r *reader) growthOfDelete(ctx context.Context, remove *pb.DeleteRangeRequest) (Total, error) {
	if !r.mayLook(remove.GetKey()) {
		return Total{}, nil
	}
	end := remove.GetRangeEnd()
	switch {
	case len(end) == 0:
		end = nil // one key
	case bytes.Equal(end, []byte{0}):
		end = []byte{} // all that follow
	}
	found, err := r.find(ctx, remove.GetKey(), end, mvcc.RangeOptions{Limit: deletedKeys})
	if err != nil {
		return Total{}, err
	}
	var total Total
	for _, kv := range found {
		if string(UserOf(kv.Key)) == r.user {
			total = total.plus(Total{Bytes: -sizeOf(kv), Keys: -1})
		}
	}
	return total, nil
}

// mayLook reports whether a key of an operation is to be looked at, and counts.
func (r *reader) mayLook(key []byte) bool {
	r.left--
	return r.left >= 0 && string(UserOf(key)) == r.user
}
