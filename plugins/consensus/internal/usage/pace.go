package usage

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Pace is how fast a user may write: so many bytes a second over a longer time, and so many at once before. Everything counts that goes into the log of the store
// or its history, however little stays of it: a role that overwrites one key all the time has one value stored, and fills the disks of all members.
type Pace struct{ PerSecond, AtOnce int64 }

const (
	// perWrite is what a write leaves on the disk beside its bytes, as measured: 60 to 100 bytes of its entry in the log, and 40 to 90 of its revision in the database. What its revision takes in
	// the index in memory is bounded by the history that is kept, and what its key takes by the quota (bytesOfKey).
	perWrite = int64(192)
	// perLease is what a grant or a revocation counts, which is 128 of them a second, after 2,000: each takes etcd as much time as some writes, and whoever asks for the leases then has all of them listed.
	// The API server of Kubernetes grants one a minute.
	perLease = int64(32 << 10)
	// perDeleted is what each key costs that a request deletes. To write a key and delete it makes two revisions, each of which is in memory until it is compacted: at this price roles on three nodes make 20,000 a second.
	perDeleted = int64(1 << 10)
	// A transaction that writes reads while it is applied, by each member, and everybody's writes are behind it. It may read so much, and have etcd pass as many keys as count so much, and each byte costs as much as the part
	// of one that is written. Kubernetes reads the value that it replaces, once or twice.
	maxApplied = int64(8 << 20)
	perApplied = 8
	// maxUnderway is how many bytes of a user's writes may be under way at a time. The next write, whosever it is, waits until the disk has what is in front of it.
	maxUnderway = int64(1 << 20)
	// paceBound is how long a write waits at most because its user has written too fast.
	paceBound = 5 * time.Second
)

// PaceError refuses a request of a user that writes faster than it may.
type PaceError struct {
	User string
	Pace Pace
	// Wait is how long the request would have had to wait.
	Wait time.Duration
}

func (e *PaceError) Error() string {
	return fmt.Sprintf("consensus: the user %s may write %d KiB a second, after %d MiB at once, and has written faster: try again in %s, and write less, or less often",
		e.User, e.Pace.PerSecond>>10, e.Pace.AtOnce>>20, e.Wait.Round(time.Second))
}

// GRPCStatus is what the user gets.
func (e *PaceError) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, e.Error())
}

// wait has a request that writes wait until its user may write again, or refuses it with *PaceError. Those of a user wait in line: so what one costs that is given up is given
// back as a whole, which is not so once others have reserved behind it. checks is what the request counts for the keys of leases that etcd checks. It returns how much the request weighs for begin.
func (c *Counter) wait(ctx context.Context, user string, request any, checks int64) (weight int64, err error) {
	bytes := written(request)
	if bytes == 0 {
		return 0, nil
	}
	a, limiter := c.paceOf(user)
	if limiter == nil {
		return 0, nil
	}
	deletes, err := c.fewDeleted(ctx, user, request)
	if err != nil {
		return 0, err
	}
	held := deletes * perDeleted
	if _, ok := request.(*pb.LeaseRevokeRequest); ok { // deleted cannot count it: the answer does not say how many they were
		bytes, held = bytes+held, 0
	}
	read, err := c.reads(ctx, user, request, maxApplied)
	if err != nil {
		return 0, status.FromContextError(err).Err()
	}
	walked := c.walked(user, request)
	visits, ranges, err := c.passed(ctx, user, request)
	switch {
	case err != nil:
		return 0, status.FromContextError(err).Err()
	case ranges > 1 && read <= maxApplied && read+visits > maxApplied:
		return 0, status.Errorf(codes.ResourceExhausted, "consensus: the user %s has %d ranges in a transaction that writes, which may be in front of %d keys each: "+
			"read first, and compare revisions when you write", user, ranges, visits/ranges/perVisit)
	case walked > maxApplied:
		return 0, status.Errorf(codes.ResourceExhausted, "consensus: the user %s reads at former revisions in a transaction that writes, which has etcd pass more than %d revisions: "+
			"read first, and compare revisions when you write", user, maxApplied)
	case checks > maxApplied:
		return 0, status.Errorf(codes.ResourceExhausted, "consensus: the user %s puts too many keys on leases in one transaction that have many keys already, all of which are checked for each: "+
			"put fewer at once, or use several leases", user)
	case read > maxApplied:
		return 0, status.Errorf(codes.ResourceExhausted, "consensus: the user %s reads more than %d MiB in a transaction that writes, which is the most: "+
			"read first, and compare revisions when you write", user, maxApplied>>20)
	}
	visits += c.passedByDeletes(user, request) + walked + checks
	bytes = min(bytes+c.overwrites(user, request)+(read+visits)/perApplied, c.config.Pace.AtOnce)
	weight = bytes + held
	if len(a.line) == 0 && limiter.AllowN(time.Now(), int(bytes)) { // the usual case, without a timer
		return weight, nil
	}
	waiting, cancel := context.WithTimeout(ctx, paceBound)
	defer cancel()
	select {
	case a.line <- struct{}{}:
		defer func() { <-a.line }()
	case <-waiting.Done():
		return 0, c.late(ctx, user, a, bytes)
	}
	if limiter.WaitN(waiting, int(bytes)) != nil {
		return 0, c.late(ctx, user, a, bytes)
	}
	return weight, nil
}

// late refuses what could not be written in time.
func (c *Counter) late(ctx context.Context, user string, a *account, bytes int64) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.refused++
	missing := max(0, float64(bytes)-a.pace.Tokens())
	return &PaceError{User: user, Pace: c.config.Pace, Wait: time.Duration(missing / float64(c.config.Pace.PerSecond) * float64(time.Second))}
}

// begin has a request that writes wait until there are few bytes of its user under way, or refuses it. It weighs all that it counts for the pace: what it has etcd read, pass and delete holds
// everybody's writes up, too. end is to be called when it was answered.
func (c *Counter) begin(ctx context.Context, user string, weight int64) (end func(), err error) {
	a, limiter := c.paceOf(user)
	bytes := min(weight, maxUnderway)
	if bytes == 0 || limiter == nil {
		return func() {}, nil
	}
	end = func() { a.underway.Release(bytes) }
	if a.underway.TryAcquire(bytes) { // the usual case, without a timer
		return end, nil
	}
	waiting, cancel := context.WithTimeout(ctx, paceBound)
	defer cancel()
	if a.underway.Acquire(waiting, bytes) == nil {
		return end, nil
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a.refused++
	return nil, status.Errorf(codes.ResourceExhausted, "consensus: the user %s has %d MiB of writes under way, which is the most: wait for some of them to end", user, maxUnderway>>20)
}

// deleted counts what a request has deleted, when it is known: the next one waits for it.
func (c *Counter) deleted(user string, answer any) { c.owe(user, deletedBy(answer)*perDeleted) }

// owe has the user's next request that writes wait for some bytes, too.
func (c *Counter) owe(user string, bytes int64) {
	if bytes == 0 {
		return
	}
	if _, limiter := c.paceOf(user); limiter != nil {
		limiter.ReserveN(time.Now(), int(min(bytes, c.config.Pace.AtOnce)))
	}
}

// paid waits until a user owes nothing.
func (c *Counter) paid(ctx context.Context, user string) error {
	a, limiter := c.paceOf(user)
	if limiter == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, paceBound)
	defer cancel()
	if limiter.WaitN(waiting, 1) != nil {
		return c.late(ctx, user, a, 1)
	}
	return nil
}

func (c *Counter) paceOf(user string) (*account, *rate.Limiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.account(user)
	if a.pace == nil && c.config.Pace.PerSecond > 0 {
		a.pace = rate.NewLimiter(rate.Limit(c.config.Pace.PerSecond), int(c.config.Pace.AtOnce))
		a.line = make(chan struct{}, 1)
		a.underway = semaphore.NewWeighted(maxUnderway)
	}
	return a, a.pace
}

// written is what a request writes to the log; 0: nothing. A transaction is in it as a whole, whichever branch is taken.
func written(request any) int64 {
	switch request := request.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest:
		return int64(proto.Size(request.(proto.Message))) + perWrite
	case *pb.LeaseGrantRequest, *pb.LeaseRevokeRequest:
		return int64(proto.Size(request.(proto.Message))) + perLease
	case *pb.TxnRequest:
		if writes := writesOf(request); writes > 0 {
			return int64(proto.Size(request)) + perWrite*writes
		}
	}
	return 0
}

// writesOf is how many of a transaction's operations write.
func writesOf(txn *pb.TxnRequest) (writes int64) {
	for _, branch := range [][]*pb.RequestOp{txn.GetSuccess(), txn.GetFailure()} {
		for _, op := range branch {
			switch {
			case op.GetRequestPut() != nil, op.GetRequestDeleteRange() != nil:
				writes++
			case op.GetRequestTxn() != nil:
				writes += 1 + writesOf(op.GetRequestTxn()) // etcd carries it out as one that writes, whatever is nested
			}
		}
	}
	return writes
}

func deletedBy(answer any) (keys int64) {
	switch answer := answer.(type) {
	case *pb.DeleteRangeResponse:
		return answer.GetDeleted()
	case *pb.TxnResponse:
		for _, op := range answer.GetResponses() {
			switch {
			case op.GetResponseDeleteRange() != nil:
				keys += op.GetResponseDeleteRange().GetDeleted()
			case op.GetResponseTxn() != nil:
				keys += deletedBy(op.GetResponseTxn())
			}
		}
	}
	return keys
}
