package usage

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Settle is called when etcd has answered a request that was let in.
type Settle func(answer any, err error)

func nothing(any, error) {}

// Admit lets a request of a user in, before etcd sees it. It refuses with *OverQuotaError what the user may not have, and with *PaceError what it writes too fast. A delete is always let in for its
// bytes, and so is what leaves the user with no more than it has. The returned function is to be called when etcd has answered.
func (c *Counter) Admit(ctx context.Context, user string, request any) (Settle, error) {
	if user == c.config.ClusterUser {
		return nothing, nil
	}
	attached, checks, err := c.attach(ctx, user, request)
	if err != nil {
		return nil, err
	}
	settle, err := c.admit(ctx, user, request, checks)
	if len(attached) == 0 {
		return settle, err
	}
	detach := func() { c.detach(attached) }
	if err != nil {
		c.settle(detach, nil, nil)
		return nil, err
	}
	return func(answer any, err error) {
		settle(answer, err)
		c.settle(detach, answer, err)
	}, nil
}

// admit is Admit without what is on leases.
func (c *Counter) admit(ctx context.Context, user string, request any, checks int64) (Settle, error) {
	// The pace first: what waits must not take room from what does not.
	weight, err := c.wait(ctx, user, request, checks)
	if err != nil {
		return nil, err
	}
	end, err := c.begin(ctx, user, weight)
	if err != nil {
		return nil, err
	}
	settle, err := c.admitStored(ctx, user, request)
	if err != nil {
		end()
		return nil, err
	}
	return func(answer any, err error) {
		end()
		c.deleted(user, answer)
		settle(answer, err)
	}, nil
}

// admitStored is for the quota.
func (c *Counter) admitStored(ctx context.Context, user string, request any) (Settle, error) {
	switch request := request.(type) {
	case *pb.PutRequest:
		return c.admitBytes(ctx, user, sizeOfPut(request), request)
	case *pb.TxnRequest:
		return c.admitBytes(ctx, user, mostOfTxn(request), request)
	case *pb.LeaseGrantRequest:
		return c.admitLease(user, request.GetID())
	}
	return nothing, nil
}

// admitBytes reserves as much as a request can add at most, whatever it is let in for: so the bytes stay within the quota in whatever order etcd carries
// out what comes at once.
func (c *Counter) admitBytes(ctx context.Context, user string, size int64, request any) (Settle, error) {
	if size == 0 {
		return nothing, nil
	}
	fits := func(more int64) (*account, bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		a := c.account(user)
		if more > 0 && a.stored.counts()+a.reserved+more > c.quota(user).bytes {
			return a, false
		}
		a.reserved += size
		return a, true
	}
	a, ok := fits(size)
	if !ok {
		// Nobody is refused for what was deleted a moment ago, nor for what is not known to be counted.
		if err := c.catchUp(ctx); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		a, ok = fits(size)
	}
	if !ok {
		growth, err := c.growth(ctx, user, request)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		more := a.stored.plus(growth).counts() - a.stored.counts()
		c.mu.Unlock()
		if a, ok = fits(more); !ok {
			return nil, c.refuse(user, a, func(e *OverQuotaError) { e.Bytes = more })
		}
	}
	return func(answer any, err error) { c.settle(func() { a.reserved -= size }, answer, err) }, nil
}

// refuse counts a refusal and says what it is about.
func (c *Counter) refuse(user string, a *account, what func(*OverQuotaError)) error {
	c.mu.Lock()
	a.refused++
	keys := a.stored.Keys
	c.mu.Unlock()
	refusal := &OverQuotaError{Usage: c.Of(user), Keys: keys}
	what(refusal)
	return refusal
}

// settle lets go of what was reserved for a request, when it is among what is counted, or is known to have had no effect. let is called with c.mu held.
func (c *Counter) settle(let func(), answer any, err error) {
	revision := revisionOf(answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && revision > c.revision:
		c.answered = append(c.answered, reservation{let: let, revision: revision})
	case err == nil || hadNoEffect(err):
		let()
	default:
		c.later(let)
	}
}

func revisionOf(answer any) int64 {
	if answered, ok := answer.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		return answered.GetHeader().GetRevision()
	}
	return 0
}

// hadNoEffect reports whether an error says that the request was not carried out and will not be. After the others, a timeout for one, it still may be.
func hadNoEffect(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unauthenticated, codes.ResourceExhausted, codes.Unimplemented:
		return true
	}
	return false
}

// late is what is let go of when a request can have no effect any more.
type late struct {
	at  time.Time
	let func()
}

// later lets go of something; c.mu is held.
func (c *Counter) later(let func()) {
	c.unsure = append(c.unsure, late{at: time.Now().Add(c.config.LateBound), let: let})
}

func (c *Counter) forgetLate(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsure = slices.DeleteFunc(c.unsure, func(l late) bool {
		if now.Before(l.at) {
			return false
		}
		l.let()
		return true
	})
}
