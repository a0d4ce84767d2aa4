package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/stats"
)

// asks has a request begin on a connection, and returns its call and what ends it.
func (s *socket) asks(t *testing.T, p *peers) (ctx context.Context, end func()) {
	t.Helper()
	ctx, end = context.WithCancel(s.call())
	ctx, err := p.admit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, end
}

// sends has so many bytes come on a connection, and reports whether it is read on.
func (s *socket) sends(p *peers, bytes int) bool {
	return p.took(s.connection, bytes)
}

func (p *peers) unfinishedOf(caller string) (of, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unfinished[caller], p.allUnfinished
}

// Who does not end their requests has so many bytes of them on all of their connections, and loses the one on which more comes. What is complete, or has ended, does not count, nor what others send.
func TestUnfinishedRequestsOfACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		one, two, other := connects(t, p, "192.0.2.2", 1), connects(t, p, "192.0.2.3", 1), connects(t, p, "192.0.2.4", 1)
		for s, caller := range map[*socket]string{one: "viewer", two: "viewer", other: "node"} {
			p.letIn(s.call(), "")
			p.belongs(s.call(), caller)
		}
		_, ends := one.asks(t, p)
		for range 100 {
			ctx, end := one.asks(t, p)
			if !one.sends(p, maxRequest) {
				t.Fatal("requests that are complete are held against the caller")
			}
			p.HandleRPC(ctx, &stats.InPayload{WireLength: maxRequest})
			end()
		}
		synctest.Wait()
		if of, all := p.unfinishedOf("viewer"); of != 0 || all != 0 {
			t.Errorf("%d bytes of complete requests are counted, %d of all", of, all)
		}
		ends()
		if synctest.Wait(); !one.sends(p, 2*callerUnfinished) {
			t.Error("bytes are counted while no request is under way")
		}
		for _, s := range []*socket{one, two, other} {
			_, end := s.asks(t, p)
			defer end()
		}
		if !one.sends(p, callerUnfinished/2) || !other.sends(p, callerUnfinished) || !two.sends(p, callerUnfinished/2) {
			t.Error("a connection is closed within the bound")
		}
		if two.sends(p, 1) {
			t.Error("it is read on")
		}
		synctest.Wait()
		if one.closed() || !two.closed() || other.closed() {
			t.Errorf("closed: %t %t %t", one.closed(), two.closed(), other.closed())
		}
		if of, all := p.unfinishedOf("viewer"); of != callerUnfinished/2 || all != of+callerUnfinished {
			t.Errorf("%d bytes are counted, %d of all", of, all)
		}
	})
}

// What comes of the next request of a call that has several is counted, however many of it were complete before; and nothing is once the call has ended.
func TestUnfinishedRequestsOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		s := connects(t, p, "192.0.2.2", 1)
		p.letIn(s.call(), "")
		p.belongs(s.call(), "node")
		ctx, end := s.asks(t, p)
		p.HandleRPC(ctx, &stats.Begin{IsClientStream: true})
		for range 100 {
			if !s.sends(p, maxRequest) {
				t.Fatal("requests that are complete are held against the caller")
			}
			p.HandleRPC(ctx, &stats.InPayload{WireLength: maxRequest - 100})
		}
		if of, all := p.unfinishedOf("node"); of != 0 || all != 0 {
			t.Errorf("%d bytes of complete requests are counted, %d of all", of, all)
		}
		if !s.sends(p, callerUnfinished) {
			t.Error("the connection is closed within the bound")
		}
		if of, all := p.unfinishedOf("node"); of != callerUnfinished || all != of {
			t.Errorf("%d bytes of the next request are counted, %d of all", of, all)
		}
		end()
		synctest.Wait()
		if of, all := p.unfinishedOf("node"); of != 0 || all != 0 {
			t.Errorf("%d bytes are counted of a call that has ended, %d of all", of, all)
		}
		if !s.sends(p, 2*callerUnfinished) || s.closed() {
			t.Error("bytes are counted while no call is under way")
		}
	})
}

// All together have so much, and where it is more, who has most of it goes.
func TestUnfinishedRequestsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		var sockets []*socket
		for n := range mostUnfinished/strangerBytes + 1 {
			s := connects(t, p, "2001:db8:"+string(rune('a'+n%6))+string(rune('a'+n/6%6))+string(rune('a'+n/36))+"::1", 1)
			_, end := s.asks(t, p)
			defer end()
			bytes := strangerBytes
			if n == 0 {
				p.letIn(s.call(), "")
				bytes++
			}
			if read := s.sends(p, bytes); !read {
				t.Fatalf("connection %d is closed", n)
			}
			sockets = append(sockets, s)
		}
		synctest.Wait()
		for n, s := range sockets {
			if s.closed() != (n == 0) {
				t.Errorf("connection %d: closed %t", n, s.closed())
			}
		}
		if _, all := p.unfinishedOf(""); all > mostUnfinished {
			t.Errorf("%d bytes are held", all)
		}
		time.Sleep(strangerFor)
	})
}
