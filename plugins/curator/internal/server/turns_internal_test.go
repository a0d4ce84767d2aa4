package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	anyRead  = "/management/Read"
	anyWrite = "/management/Write"
	anyBeat  = "/node/Beat"
)

// crowd has callers call, and each call is carried out until it is let end.
type crowd struct {
	t      *testing.T
	peers  *peers
	guard  *auth.Guard
	letEnd chan struct{}
	calls  sync.WaitGroup

	mu      sync.Mutex
	running map[string]int
	ended   map[codes.Code]int
}

type callerKey struct{}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{t: t, peers: newPeers(), letEnd: make(chan struct{}), running: make(map[string]int), ended: make(map[codes.Code]int)}
	c.peers.turns.reads = func(rpc string) bool { return rpc == anyRead }
	c.peers.turns.changes = func(rpc string) bool { return rpc == anyWrite }
	c.guard = auth.NewGuard(auth.GuardConfig{Authenticate: func(ctx context.Context) (auth.Caller, error) { return ctx.Value(callerKey{}).(auth.Caller), nil }})
	all := &clusterv1.Permission{Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_NODE, clusterv1.Caller_CALLER_OWNER, clusterv1.Caller_CALLER_OPERATOR, clusterv1.Caller_CALLER_VIEWER}}
	c.guard.Enforce(auth.Permissions{anyRead: all, anyWrite: all, anyBeat: all})
	return c
}

func viewer(name string) auth.Caller {
	return auth.Caller{Kind: clusterv1.Caller_CALLER_VIEWER, Person: &auth.Person{Operator: name, ID: name, Session: new(identity.Session)}}
}

// call makes some calls, and returns when each of them is carried out, waits or was refused.
func (c *crowd) call(ctx context.Context, caller auth.Caller, rpc string, n int) {
	for range n {
		c.calls.Go(func() {
			_, err := c.guard.Unary(context.WithValue(ctx, callerKey{}, caller), nil, &grpc.UnaryServerInfo{FullMethod: rpc}, func(ctx context.Context, _ any) (any, error) {
				end, err := c.peers.takeTurn(ctx, rpc)
				if err != nil {
					return nil, err
				}
				defer end()
				c.count(caller.String(), 1)
				<-c.letEnd
				c.count(caller.String(), -1)
				return nil, nil
			})
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended[status.Code(err)]++
		})
	}
	synctest.Wait()
}

func (c *crowd) count(caller string, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[caller] += more
}

// want fails the test if another number of calls of a caller is carried out.
func (c *crowd) want(caller string, want int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[caller] != want {
		c.t.Errorf("%d calls of %s are carried out, want %d", c.running[caller], caller, want)
	}
}

// However many reads a caller makes, a few are carried out at a time, and all of them in the end. Nobody else waits for them.
func TestTurnsOfACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		ctx, giveUp := context.WithCancel(t.Context())
		c.call(t.Context(), viewer("vera"), anyRead, 400)
		c.call(ctx, viewer("vera"), anyRead, 400)
		c.want("operator vera", callerTurns)
		c.call(t.Context(), viewer("victor"), anyRead, 1)
		c.want("operator victor", 1)
		c.call(t.Context(), auth.Caller{Kind: clusterv1.Caller_CALLER_OWNER, Person: new(auth.Person)}, anyRead, 1)
		c.want("owner", 1)
		// Neither what changes something waits for a turn, nor what nodes call.
		c.call(t.Context(), viewer("vera"), anyWrite, 10)
		c.want("operator vera", callerTurns+10)
		c.call(t.Context(), auth.Caller{Kind: clusterv1.Caller_CALLER_NODE, NodeID: "reeve-1"}, anyBeat, 100)
		c.want("node reeve-1", 100)
		// Who gives up leaves the line, and only what waits can be given up here.
		giveUp()
		synctest.Wait()
		if c.ended[codes.Canceled] != 400 {
			t.Errorf("%v have ended", c.ended)
		}
		c.want("operator vera", callerTurns+10)
		close(c.letEnd)
		c.calls.Wait()
		if c.ended[codes.OK] != 400+1+1+10+100 || len(c.peers.turns.lines) != 0 {
			t.Errorf("%v have ended; %d lines are left", c.ended, len(c.peers.turns.lines))
		}
	})
}

// An operator's changes are carried out one after another, and nobody else's wait for them, nor the operator's own reads.
func TestTurnsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		operator := func(name string) auth.Caller {
			return auth.Caller{Kind: clusterv1.Caller_CALLER_OPERATOR, Person: viewer(name).Person}
		}
		for n := range 2 * kindTurns {
			name := fmt.Sprint("o", n)
			c.call(t.Context(), operator(name), anyWrite, 10)
			c.want("operator "+name, 1)
		}
		c.call(t.Context(), operator("o1"), anyRead, 2)
		c.want("operator o1", 3)
		c.call(t.Context(), auth.Caller{Kind: clusterv1.Caller_CALLER_OWNER, Person: new(auth.Person)}, anyWrite, 10)
		c.want("owner", 10)
		close(c.letEnd)
		c.calls.Wait()
		if c.ended[codes.OK] != 2*kindTurns*10+2+10 || len(c.peers.turns.lines) != 0 {
			t.Errorf("%v have ended; %d lines are left", c.ended, len(c.peers.turns.lines))
		}
	})
}

// Many viewers together have a bound too, and none of them, nor all, has another kind of caller wait.
func TestTurnsOfAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for n := range 10 {
			c.call(t.Context(), viewer(fmt.Sprint("viewer", n)), anyRead, 100)
		}
		all := 0
		for _, running := range c.running {
			all += running
		}
		if all != kindTurns {
			t.Errorf("%d calls of viewers are carried out, want %d", all, kindTurns)
		}
		c.call(t.Context(), auth.Caller{Kind: clusterv1.Caller_CALLER_OWNER, Person: new(auth.Person)}, anyRead, 1)
		c.want("owner", 1)
		close(c.letEnd)
		c.calls.Wait()
		if c.ended[codes.OK] != 10*100+1 {
			t.Errorf("%v have ended", c.ended)
		}
	})
}

// Who is revoked while their calls wait is refused when their turn comes.
func TestRevokedInTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.call(t.Context(), viewer("vera"), anyRead, 50)
		c.peers.mu.Lock()
		c.peers.state = &store.State{Revision: 1}
		c.peers.mu.Unlock()
		close(c.letEnd)
		c.calls.Wait()
		if c.ended[codes.OK] != callerTurns || c.ended[codes.Unauthenticated] != 50-callerTurns {
			t.Errorf("%v have ended", c.ended)
		}
		time.Sleep(strangerFor)
	})
}
