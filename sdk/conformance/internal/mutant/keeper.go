package main

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// keeper is the role that keeps a key in the store.
const keeper = "keeper"

const (
	ready    = rolev1.RoleState_ROLE_STATE_READY
	degraded = rolev1.RoleState_ROLE_STATE_DEGRADED
	broken   = rolev1.RoleState_ROLE_STATE_FAILED
	blocked  = rolev1.RoleState_ROLE_STATE_BLOCKED

	waiting    = hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_WAITING
	notMember  = hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_MEMBER
	notGranted = hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_NOT_GRANTED
)

// ofStore reports whether the fault is one of a role that uses the store.
func ofStore() bool {
	_, known := faults.OfStore()[fault]
	return known
}

// store is what the role knows of the store.
type store struct {
	host   hostv1.HostServiceClient
	answer atomic.Pointer[hostv1.OpenConsensusResponse] // nil: there was none yet
	conn   *grpc.ClientConn                             // nil until the store was open
	was    bool                                         // whether the role has been Ready
	lost   bool                                         // whether it has lost the store
}

// follow follows whether the store is open until the process ends.
func (s *store) follow() {
	for heard := false; ; {
		stream, err := s.host.OpenConsensus(context.Background(), &hostv1.OpenConsensusRequest{})
		for err == nil {
			var answer *hostv1.OpenConsensusResponse
			if answer, err = stream.Recv(); err == nil {
				s.answer.Store(answer)
				if fault == faults.GivesUpWaiting && !heard && answer.GetOpen() == nil {
					return // it goes by this answer, and hears of no other one
				}
				heard = true
			}
		}
		time.Sleep(again)
	}
}

// why is why the store is not open; unspecified: it is.
func (s *store) why() hostv1.ConsensusUnavailableReason {
	return s.answer.Load().GetUnavailable().GetReason()
}

// keep writes its key again and again, and says how that goes.
func (r *role) keep(host hostv1.HostServiceClient) {
	s := &store{host: host}
	go s.follow()
	for ; ; time.Sleep(again) {
		answer := s.answer.Load()
		switch {
		case answer == nil:
		case answer.GetOpen() == nil:
			r.without(s)
		default:
			r.write(s, answer.GetOpen())
		}
	}
}

// without says that the store is not open.
func (r *role) without(s *store) {
	state := degraded
	switch why := s.why(); {
	case fault == faults.NeverOpens, !s.was && fault != faults.GivesUpWaiting:
		return
	case fault == faults.GivesUpWaiting && !s.was, fault == faults.FailsRevoked && why == notGranted, fault == faults.FailsInSplit && why == notMember:
		state = broken
	case fault == faults.EndsWithoutStore && why == waiting, fault == faults.EndsInSplit && why == notMember:
		os.Exit(5)
	case fault == faults.HidesLoss && why == waiting:
		return
	case fault == faults.SpinsWithoutStore && why == waiting:
		r.enter(degraded, "the store is away")
		for s.why() == waiting { // as fast as it can
		}
		return
	case fault == faults.FloodsRevoked && why == notGranted:
		s.flood()
		return
	}
	s.lost = s.lost || s.why() == waiting
	r.enter(state, "the store is away")
}

// flood asks the host again and again whether the store is open. On a busy machine a single caller might ask too seldom to be noticed; the pause leaves the processors to others.
func (s *store) flood() {
	var asking sync.WaitGroup
	for range 16 {
		asking.Go(func() {
			for ; s.why() == notGranted; time.Sleep(10 * time.Millisecond) {
				ctx, cancel := context.WithCancel(context.Background())
				if stream, err := s.host.OpenConsensus(ctx, &hostv1.OpenConsensusRequest{}); err == nil {
					_, _ = stream.Recv()
				}
				cancel()
			}
		})
	}
	asking.Wait()
}

// write writes the key, after a lease that runs out soon.
func (r *role) write(s *store, open *hostv1.ConsensusOpen) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.conn == nil {
		conn, err := dial(open.GetSocket())
		if err != nil {
			r.enter(broken, err.Error())
			return
		}
		s.conn = conn
		ttl := int64(20)
		if fault == faults.LeavesLease {
			ttl = 3600
		}
		if _, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl}, grpc.WaitForReady(true)); err != nil {
			logLine("error", err.Error())
		}
		if fault == faults.Strays {
			_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("/reeve/users/another/secret")})
			logLine("warn", err.Error())
		}
	}
	_, err := pb.NewKVClient(s.conn).Put(ctx, &pb.PutRequest{Key: []byte(open.GetPrefix() + "beat"), Value: []byte(time.Now().String())}, grpc.WaitForReady(true))
	full := status.Code(err) == codes.ResourceExhausted
	switch {
	// On a busy machine a write may run out of time, and it fails when the store is lost before the role hears of the loss. Those that hide something hide these errors too.
	case fault == faults.NeverOpens, fault == faults.StaysWithoutStore && s.lost, fault == faults.HidesFull && err != nil, fault == faults.HidesLoss && err != nil && !full:
	case err == nil:
		s.was = true
		r.enter(ready, "")
	case fault == faults.FailsFull && full:
		r.enter(broken, "the store is full")
	case s.was && s.why() == hostv1.ConsensusUnavailableReason_CONSENSUS_UNAVAILABLE_REASON_UNSPECIFIED:
		r.enter(degraded, err.Error())
	}
}
