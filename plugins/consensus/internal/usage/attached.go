package usage

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mostAttached is how many keys may be on a lease. When it ends, etcd deletes them all in one step while everybody's writes wait, ten microseconds for each, and up to 16 leases at once end
// like that. For each key that is put on a lease etcd checks the user's permission for all that are on it already, a microsecond for each, and everybody's writes wait for that, too. The API server of
// Kubernetes puts 1,000 on one.
const mostAttached = int64(2000)

// perCheck is what a put on a lease counts for each key that is on it, where it is reckoned as what is read: a user has 131,072 a second checked, a tenth of the time of each member.
const perCheck = int64(256)

// attach reserves room on the leases that the keys of a request are put on, and returns how many each has reserved, and what the request counts for the keys that etcd checks. It refuses a request that
// puts too many on one, whether they are on it already or not: to know that their values would have to be read.
func (c *Counter) attach(ctx context.Context, user string, request any) (attached map[int64]int64, checks int64, err error) {
	for _, put := range leased(nil, request) {
		if attached == nil {
			attached = make(map[int64]int64)
		}
		attached[put.GetLease()]++
	}
	if attached == nil {
		return nil, 0, nil
	}
	fits := func() (full int64, ok bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for lease, keys := range attached {
			if c.attached[lease]+c.attaching[lease]+keys > mostAttached {
				return lease, false
			}
		}
		for lease, keys := range attached {
			checks += keys * (c.attached[lease] + c.attaching[lease]) * perCheck
			add(c.attaching, lease, keys)
		}
		return 0, true
	}
	full, ok := fits()
	if !ok { // Nobody is refused for what has left the lease a moment ago.
		if err := c.catchUp(ctx); err != nil {
			return nil, 0, status.FromContextError(err).Err()
		}
		full, ok = fits()
	}
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.account(user).refused++
		return nil, 0, status.Errorf(codes.ResourceExhausted, "consensus: the user %s puts more than %d keys on the lease %x, which is the most: use several leases", user, mostAttached, full)
	}
	return attached, checks, nil
}

// detach lets go of what attach has reserved; c.mu is held.
func (c *Counter) detach(attached map[int64]int64) {
	for lease, keys := range attached {
		add(c.attaching, lease, -keys)
	}
}

// leased appends the puts of a request that have a lease.
func leased(all []*pb.PutRequest, request any) []*pb.PutRequest {
	switch request := request.(type) {
	case *pb.PutRequest:
		if request.GetLease() != 0 {
			all = append(all, request)
		}
	case *pb.TxnRequest:
		for _, branch := range [][]*pb.RequestOp{request.GetSuccess(), request.GetFailure()} {
			for _, op := range branch {
				switch {
				case op.GetRequestPut() != nil:
					all = leased(all, op.GetRequestPut())
				case op.GetRequestTxn() != nil:
					all = leased(all, op.GetRequestTxn())
				}
			}
		}
	}
	return all
}

// add adds to the number of keys of a lease; 0: of none.
func add(keys map[int64]int64, lease, more int64) {
	if lease == 0 || more == 0 {
		return
	}
	if keys[lease] += more; keys[lease] == 0 {
		delete(keys, lease)
	}
}
