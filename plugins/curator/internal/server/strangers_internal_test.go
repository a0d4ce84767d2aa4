package server

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
)

// begin has a call begin on a connection, and returns what ends it.
func (s *socket) begin(t *testing.T, p *peers) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(s.call())
	// gRPC forgets nothing of what is refused here before its deadline.
	if _, err := p.admit(ctx, nil); err != nil {
		t.Fatalf("a call is refused: %v", err)
	}
	return cancel
}

func (p *peers) counted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprint(p.allStrangerCalls, p.strangerCalls)
}

// Who holds too many calls on one connection loses it, and only it, and what is counted ends with the calls or with the connection.
func TestCallsOfAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		one, other := connects(t, p, "192.0.2.2", 1), connects(t, p, "192.0.2.2", 2)
		other.begin(t, p)()
		synctest.Wait()
		if got := p.counted(); got != "0 map[]" {
			t.Errorf("calls that have ended are counted: %s", got)
		}
		var ends []func()
		for range strangerCalls {
			ends = append(ends, one.begin(t, p))
		}
		synctest.Wait()
		if one.closed() {
			t.Errorf("a connection with %d calls is closed", strangerCalls)
		}
		ends = append(ends, one.begin(t, p), one.begin(t, p))
		synctest.Wait()
		if !one.closed() || other.closed() {
			t.Errorf("closed: %t, and the other one: %t", one.closed(), other.closed())
		}
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		if got := p.counted(); got != "0 map[]" {
			t.Errorf("calls of a connection that was closed are counted: %s", got)
		}
		time.Sleep(strangerFor)
	})
}

// However many calls those hold who proved nothing, from one network or from many, whoever comes next can call: the oldest of them goes.
func TestNoStrangerKeepsOthersOut(t *testing.T) {
	for name, test := range map[string]struct {
		most    int
		address func(n int) string
	}{
		"one network": {strangerCallsPerPeer, func(n int) string { return fmt.Sprintf("2001:db8::%x", n+1) }},
		"everywhere":  {mostStrangerCalls, func(n int) string { return fmt.Sprintf("2001:db8:0:%x::1", n+1) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeers()
				var holding []*socket
				for n := range test.most / strangerCalls {
					s := connects(t, p, test.address(n), 1)
					for range strangerCalls {
						s.begin(t, p)
					}
					holding = append(holding, s)
					time.Sleep(time.Millisecond)
				}
				idle := connects(t, p, test.address(len(holding)), 1)
				newcomer := connects(t, p, test.address(len(holding)+1), 1)
				newcomer.begin(t, p)
				synctest.Wait()
				for n, s := range append(holding, idle, newcomer) {
					if s.closed() != (n == 0) {
						t.Errorf("connection %d: closed %t", n, s.closed())
					}
				}
				time.Sleep(strangerFor)
			})
		})
	}
}

// A connection may come from the very address of one that was reset and has not left yet: what is known of the one is not known of the other, and it is counted until it leaves itself.
func TestAnAddressThatIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		before := connects(t, p, "192.0.2.2", 1)
		now := connects(t, p, "192.0.2.2", 1)
		p.letIn(before.call(), "a")
		if err := before.connection.Close(); err != nil {
			t.Fatal(err)
		}
		for range strangerCalls + 1 {
			now.begin(t, p)
		}
		synctest.Wait()
		if !now.closed() {
			t.Error("who comes from the address of somebody who was let in is no stranger")
		}
		// Whoever has too many goes, wherever they come from.
		for n := range strangerCallsPerPeer + 1 {
			connects(t, p, "192.0.2.2", 2+n/strangerCalls).begin(t, p)
			synctest.Wait() // for those that are closed
		}
		synctest.Wait()
		if p.letIn(before.call(), "a"); len(p.nodes) != 0 {
			t.Error("a connection that has left is somebody's")
		}
		time.Sleep(strangerFor)
	})
}

// Who was told to be nobody is told so again from memory on that connection, which ends soon after, also if calls go on.
func TestNobodyIsLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		looked := 0
		authenticate := p.remembering(func(context.Context) (auth.Caller, error) {
			looked++
			return auth.Caller{}, status.Error(codes.Unauthenticated, "nobody")
		})
		s, other := connects(t, p, "192.0.2.2", 1), connects(t, p, "192.0.2.2", 2)
		for range 3 {
			if _, err := authenticate(s.call()); status.Code(err) != codes.Unauthenticated {
				t.Errorf("a stranger is told %v", err)
			}
			time.Sleep(refusedFor / 4)
			synctest.Wait()
			if s.closed() {
				t.Fatal("the connection is closed before the answer is read")
			}
		}
		if looked != 1 {
			t.Errorf("it was looked %d times who it is", looked)
		}
		time.Sleep(refusedFor / 2)
		synctest.Wait()
		if !s.closed() || other.closed() {
			t.Errorf("closed: %t, and the other one: %t", s.closed(), other.closed())
		}
		// What is not known yet is asked again.
		away := p.remembering(func(context.Context) (auth.Caller, error) {
			looked++
			return auth.Caller{}, status.Error(codes.Unavailable, "away")
		})
		for range 2 {
			_, _ = away(other.call())
		}
		if looked != 3 {
			t.Errorf("it was looked %d times", looked)
		}
		time.Sleep(strangerFor)
	})
}
