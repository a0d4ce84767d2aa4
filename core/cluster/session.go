package cluster

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/problem"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// callTimeout bounds the calls that have no bound of their own: a curator answers from its store in some milliseconds, and in seconds
// while the store elects a leader.
const callTimeout = 10 * time.Second

// session is one connection to a curator and the workers on it.
type session struct {
	*Client
	to   target
	conn *grpc.ClientConn
	api  clusterv1.NodeServiceClient
	// streams counts the Watch streams that have delivered: each means that the curator is newly in reach.
	streams event.Value[int]
	// unfollowed is why the node does not follow the store of the curator; nil: it does, or does not know that store yet. Written by the watch worker. As long as it is so, the node tells that store nothing of its
	// life, and takes neither SVIDs nor a CA of it. Nothing is lost by that: a node whose SVID has ended proves itself by its key, so a watch is taken without a new one, and the next watch says whether the node
	// follows that store by now.
	unfollowed event.Value[error]
	// condition is how the session is; others says that there is another curator to go to.
	condition event.Value[condition]
	others    atomic.Bool
}

// runSession runs a session until attend returns, which stays with it; it returns when its workers have ended and its connection is closed.
func (c *Client) runSession(ctx context.Context, to target, attend func(context.Context, *session)) {
	conn, err := c.dial(to)
	if err != nil {
		// Only an address that gRPC cannot parse leads here; another one will be published.
		c.setWay(way{missing: err.Error(), since: time.Now()})
		s := &session{Client: c, to: to}
		s.felt(watchPulse, time.Now(), err)
		attend(ctx, s)
		return
	}
	s := &session{Client: c, to: to, conn: conn, api: clusterv1.NewNodeServiceClient(conn)}
	s.unfollowed.Set(c.refusals[to.key()]) // so that not each new session is heard by it once
	c.current.Set(s)
	defer c.current.Set(nil)
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	workers.Go(func() { s.persist(ctx, "watch", maxPause, s.watch) })
	workers.Go(func() { s.persist(ctx, "report", maxPause, s.report) })
	workers.Go(func() { s.persist(ctx, "heartbeat", maxPause, s.heartbeat) })
	workers.Go(func() { s.persist(ctx, "renew", maxRenewPause, s.renew) })
	attend(ctx, s)
	cancel()
	workers.Wait()
	if err := conn.Close(); err != nil {
		c.config.Log.Debug("closing the connection to the curator", "curator", to.address, "error", err)
	}
}

// awaitStore waits as long as the node refuses the curator's store.
func (s *session) awaitStore(ctx context.Context) error {
	_, err := s.unfollowed.Wait(ctx, func(why error) bool { return why == nil })
	return err
}

// refuse takes note of why the node refuses the curator's store; nil: it follows it.
func (s *session) refuse(why error) {
	if why == nil {
		delete(s.refusals, s.to.key())
	} else {
		s.refusals[s.to.key()] = why
	}
	s.unfollowed.Set(why)
}

// checkStore returns why the node refuses the curator's store; nil: it does not.
func (s *session) checkStore() error {
	why, _ := s.unfollowed.Get()
	return why
}

// persist calls work again whenever it fails, until the context ends. The pauses grow with every failure in a row, up to longest; work calls
// made when it got somewhere.
func (s *session) persist(ctx context.Context, worker string, longest time.Duration, work func(ctx context.Context, made func()) error) {
	pauses := &backoff.ExponentialBackOff{
		InitialInterval:     minPause,
		RandomizationFactor: 0.5,
		Multiplier:          2,
		MaxInterval:         longest,
	}
	pauses.Reset()
	complaint := ""
	for {
		err := work(ctx, func() {
			pauses.Reset()
			complaint = ""
			s.heard()
		})
		if ctx.Err() != nil {
			return
		}
		s.learn(err)
		s.deny(err)
		// The same complaint every two seconds would hide everything else.
		if text := explain(err); text != complaint {
			complaint = text
			level := hclog.Info
			if refused(err) {
				level = hclog.Warn
			}
			s.config.Log.Log(level, "the cluster API failed, trying again", "worker", worker, "curator", s.to.address, "error", text)
		}
		s.pause(ctx, pauses.NextBackOff())
	}
}

// pause waits for a time, or until the connection has come back.
func (s *session) pause(ctx context.Context, duration time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	state := s.conn.GetState()
	for s.conn.WaitForStateChange(ctx, state) {
		if state = s.conn.GetState(); state == connectivity.Ready {
			return
		}
	}
}

// clockInError is how crypto/x509 puts the clock into an error. It is another text at every try, and would be news each time.
var clockInError = regexp.MustCompile(`current time \S+ is (before|after)`)

// explain says what a call failed of, for people, in the same words for the same failure.
func explain(err error) string {
	return clockInError.ReplaceAllString(explanation(err), "this machine's clock is $1")
}

func explanation(err error) string {
	failure, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	switch failure.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Sprintf("the curator refuses this node (%s): %s", failure.Code(), failure.Message())
	case codes.DeadlineExceeded:
		return "the curator did not answer in time"
	default:
		return fmt.Sprintf("%s: %s", failure.Code(), problem.Plain(err))
	}
}
