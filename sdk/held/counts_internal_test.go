package held

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

const largest = 2 << 20

var bounds = Config{
	Unfinished: 8 * largest, AllUnfinished: 256 << 20, Held: 64 << 20, AllUnread: 256 << 20, Call: 64 << 10, Answer: 4 << 10,
	Refusal: func(client string, held, _ int) error {
		return status.Errorf(codes.ResourceExhausted, "%s holds %d bytes", client, held)
	},
}

// socket is a connection that nothing is read from or written to, with what is counted of it.
type socket struct {
	net.Conn
	ended   atomic.Bool
	counted *Connection
}

func (*socket) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

func (s *socket) Close() error {
	s.ended.Store(true)
	return nil
}

func (s *socket) closed() bool { return s.ended.Load() }

func connects(c *Counts, client string) *socket {
	s := new(socket)
	s.counted = c.Connection(s, client)
	return s
}

// call is one that the server has not seen yet.
func (s *socket) call() context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{Addr: s.counted.RemoteAddr()})
}

// asks has a request begin on a connection, and returns its call and what ends it.
func (s *socket) asks(t *testing.T) (ctx context.Context, end func()) {
	t.Helper()
	ctx, end = context.WithCancel(s.call())
	ctx, err := s.counted.counts.Begin(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, end
}

// sends has so many bytes come on a connection, and reports whether it is read on.
func (s *socket) sends(bytes int) bool { return s.counted.counts.came(s.counted, bytes) }

func (c *Counts) unfinishedOf(client string) (of, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unfinished[client], c.allUnfinished
}

func (c *Counts) heldOf(client string) (of, unread int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[client], c.allUnread
}

// A client that does not end its requests has so many bytes of them on all of its connections, and loses the one on which more comes. What is complete, or has ended, does not count, nor what others send.
func TestUnfinishedRequestsOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(bounds)
		one, two, other := connects(c, ""), connects(c, ""), connects(c, "node")
		_, endsEarly := one.asks(t)
		one.sends(1000)
		for _, s := range []*socket{one, two} {
			s.counted.Belongs("viewer")
			s.counted.Belongs("somebody else")
		}
		if of, all := c.unfinishedOf("viewer"); of != 1000 || all != 1000 {
			t.Errorf("%d bytes are counted that came before it was known whose they are, %d of all", of, all)
		}
		endsEarly()
		synctest.Wait()
		_, ends := one.asks(t)
		for range 100 {
			ctx, end := one.asks(t)
			if !one.sends(largest) {
				t.Fatal("requests that are complete are held against the client")
			}
			c.HandleRPC(ctx, &stats.InPayload{WireLength: largest})
			end()
		}
		synctest.Wait()
		if of, all := c.unfinishedOf("viewer"); of != 0 || all != 0 {
			t.Errorf("%d bytes of complete requests are counted, %d of all", of, all)
		}
		ends()
		if synctest.Wait(); !one.sends(2 * bounds.Unfinished) {
			t.Error("bytes are counted while no request is under way")
		}
		for _, s := range []*socket{one, two, other} {
			_, end := s.asks(t)
			defer end()
		}
		if !one.sends(bounds.Unfinished/2) || !other.sends(bounds.Unfinished) || !two.sends(bounds.Unfinished/2) {
			t.Error("a connection is closed within the bound")
		}
		if two.sends(1) {
			t.Error("it is read on")
		}
		synctest.Wait()
		if one.closed() || !two.closed() || other.closed() {
			t.Errorf("closed: %t %t %t", one.closed(), two.closed(), other.closed())
		}
		if of, all := c.unfinishedOf("viewer"); of != bounds.Unfinished/2 || all != of+bounds.Unfinished {
			t.Errorf("%d bytes are counted, %d of all", of, all)
		}
		for _, s := range []*socket{one, two, other} {
			_ = s.counted.Close()
		}
		if of, all := c.unfinishedOf("viewer"); of != 0 || all != 0 || len(c.all) != 0 || len(c.unfinished) != 0 {
			t.Errorf("when all are closed, %d bytes are counted, %d of all", of, all)
		}
	})
}

// What comes of the next request of a call that has several is counted, however many of it were complete before; and nothing is once the call has ended.
func TestUnfinishedRequestsOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(bounds)
		s := connects(c, "node")
		ctx, end := s.asks(t)
		c.HandleRPC(ctx, &stats.Begin{IsClientStream: true})
		for range 100 {
			if !s.sends(largest) {
				t.Fatal("requests that are complete are held against the client")
			}
			c.HandleRPC(ctx, &stats.InPayload{WireLength: largest - 100})
		}
		if of, all := c.unfinishedOf("node"); of != 0 || all != 0 {
			t.Errorf("%d bytes of complete requests are counted, %d of all", of, all)
		}
		if !s.sends(bounds.Unfinished) {
			t.Error("the connection is closed within the bound")
		}
		if of, all := c.unfinishedOf("node"); of != bounds.Unfinished || all != of {
			t.Errorf("%d bytes of the next request are counted, %d of all", of, all)
		}
		end()
		synctest.Wait()
		if of, all := c.unfinishedOf("node"); of != 0 || all != 0 {
			t.Errorf("%d bytes are counted of a call that has ended, %d of all", of, all)
		}
		if !s.sends(2*bounds.Unfinished) || s.closed() {
			t.Error("bytes are counted while no call is under way")
		}
	})
}

// All together have so much, and where it is more, the one that holds the most goes, also if nobody knows who they are.
func TestUnfinishedRequestsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(bounds)
		var sockets []*socket
		for n := range bounds.AllUnfinished/largest + 1 {
			s, bytes := connects(c, ""), largest
			if n == 0 {
				bytes++
			}
			_, end := s.asks(t)
			defer end()
			if !s.sends(bytes) {
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
		if _, all := c.unfinishedOf(""); all > bounds.AllUnfinished {
			t.Errorf("%d bytes are held", all)
		}
	})
}

// Calls are held against their client for as long as they last, with their requests.
func TestCallsUnderWayOfAClient(t *testing.T) {
	c := New(bounds)
	one, two, other := connects(c, "vera"), connects(c, "vera"), connects(c, "victor")
	var ends []func()
	for n := range bounds.Held / bounds.Call {
		end, err := c.carryOut([]*socket{one, two}[n%2].call(), nil, 0)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		ends = append(ends, end)
	}
	if _, err := c.carryOut(one.call(), nil, 0); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call more: %v", err)
	}
	if end, err := c.carryOut(other.call(), nil, 0); err != nil {
		t.Error(err)
	} else {
		ends = append(ends, end)
	}
	for _, end := range ends {
		end()
	}
	half := wrapperspb.Bytes(make([]byte, bounds.Held/2))
	end, err := c.carryOut(one.call(), half, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.carryOut(one.call(), half, 0); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("requests of 64 MiB: %v", err)
	}
	end()
	if len(c.held) != 0 {
		t.Errorf("when all have ended there are %v", c.held)
	}
	for _, uncounted := range []context.Context{context.Background(), peer.NewContext(context.Background(), &peer.Peer{Addr: new(net.UnixAddr)})} {
		if end, err := c.carryOut(uncounted, half, 0); err != nil {
			t.Errorf("a connection that is not counted: %v", err)
		} else {
			end()
		}
	}
}

// A client has so many streams at a time, on all of its connections, and as many other calls as before.
func TestStreamsOfAClient(t *testing.T) {
	config := bounds
	config.Streams = 3
	c := New(config)
	one, two, other := connects(c, "vera"), connects(c, "vera"), connects(c, "victor")
	ended := make(chan struct{})
	var streams sync.WaitGroup
	begun := make(chan struct{})
	open := func(s *socket) error {
		return c.Stream(nil, sent{ctx: s.call()}, nil, func(any, grpc.ServerStream) error {
			begun <- struct{}{}
			<-ended
			return nil
		})
	}
	for _, s := range []*socket{one, two, one, other} {
		streams.Go(func() {
			if err := open(s); err != nil {
				t.Error(err)
			}
		})
		<-begun
	}
	if err := open(two); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one stream more: %v", err)
	}
	if _, err := c.Unary(one.call(), nil, nil, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
		t.Errorf("another call: %v", err)
	}
	close(ended)
	streams.Wait()
	if len(c.streams) != 0 {
		t.Errorf("when all have ended there are %v", c.streams)
	}
}

// An answer that is never sent is held until its call has ended, and one that gRPC has until it gives it back, or the stream was reset, or the connection has ended.
func TestAnswersAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(bounds)
		s := connects(c, "vera")
		for name, release := range map[string]struct {
			encoded, answered, given, closed bool
		}{
			"never sent, since something else became of it": {answered: true},
			"reset":  {encoded: true},
			"read":   {encoded: true, answered: true, given: true},
			"closed": {encoded: true, answered: true, closed: true},
		} {
			for _, response := range []any{
				wrapperspb.String("small"), &Message{Shared: make([]byte, 3000), Own: []byte("own")}, &Message{Shared: []byte("shared")}, &Message{Own: []byte("own")},
			} {
				if s.closed() {
					s = connects(c, "vera")
				}
				ctx, end := s.asks(t)
				message, err := c.keep(ctx, response)
				if err != nil {
					t.Fatal(err)
				}
				all, alone := size(response)
				if of, unread := c.heldOf("vera"); of != bounds.Answer+all || unread != bounds.Answer+alone {
					t.Errorf("%s: %d bytes are held, and %d of all", name, of, unread)
				}
				if release.encoded {
					encoded, err := newCodec().Marshal(message)
					if err != nil {
						t.Fatal(err)
					}
					if encoded.Len() != all {
						t.Errorf("%s: a message of %d bytes is encoded in %d", name, all, encoded.Len())
					}
					if release.given {
						// gRPC gives back each part as soon as it was sent, and the message is held until all of it was.
						reader := encoded.Reader()
						encoded.Free()
						if _, err := reader.Discard(all - 1); err != nil {
							t.Fatal(err)
						}
						if of, _ := c.heldOf("vera"); of == 0 {
							t.Errorf("%s: it is not held when one byte is left", name)
						}
						if err := reader.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if release.answered {
					c.HandleRPC(ctx, &stats.OutTrailer{})
				}
				c.HandleRPC(ctx, &stats.End{})
				end()
				if release.closed {
					if of, _ := c.heldOf("vera"); of == 0 {
						t.Errorf("%s: it is not held", name)
					}
					_ = s.counted.Close()
				}
				if of, unread := c.heldOf("vera"); of != 0 || unread != 0 {
					t.Errorf("%s: %d bytes are held, and %d of all", name, of, unread)
				}
			}
		}
		synctest.Wait()
	})
}

// sent is a stream that takes everything, and gives nothing back.
type sent struct {
	grpc.ServerStream
	ctx context.Context
}

func (s sent) Context() context.Context { return s.ctx }

func (sent) SendMsg(any) error { return nil }

// Some answers have two bytes, and gRPC takes ten thousand of them of a stream that is not read: what is around each counts. And of what many are told alike there is one.
func TestMessagesOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(bounds)
		s := connects(c, "vera")
		ctx, end := s.asks(t)
		defer end()
		stream := &keeping{ServerStream: sent{ctx: ctx}, counts: c}
		messages, err := 0, error(nil)
		for ; err == nil && messages <= bounds.Held/bounds.Answer; messages++ {
			err = stream.SendMsg(wrapperspb.Bool(true))
		}
		if status.Code(err) != codes.ResourceExhausted || messages > bounds.Held/bounds.Answer {
			t.Errorf("after %d messages: %v", messages, err)
		}
		if of, unread := c.heldOf("vera"); of > bounds.Held || of != unread {
			t.Errorf("%d bytes are held, and %d of all", of, unread)
		}
		directory := make([]byte, 1<<20)
		for n := range 2 * bounds.AllUnread / len(directory) {
			node := connects(c, fmt.Sprintf("node %d", n))
			ctx, end := node.asks(t)
			defer end()
			if err := (&keeping{ServerStream: sent{ctx: ctx}, counts: c}).SendMsg(&Message{Shared: directory}); err != nil {
				t.Fatalf("node %d: %v", n, err)
			}
			defer func() {
				if node.closed() {
					t.Error("a node loses its connection for a directory that all are told")
				}
			}()
		}
		synctest.Wait()
		_ = s.counted.Close()
	})
}

// Where all together do not read too much, the one that has the most of it goes, and whoever asks is answered.
func TestUnreadAnswersOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(bounds)
		part := bounds.Held/2 - bounds.Answer - 100
		keep := func(s *socket, bytes int) {
			t.Helper()
			ctx, end := s.asks(t)
			t.Cleanup(end)
			if _, err := c.keep(ctx, wrapperspb.Bytes(make([]byte, bytes))); err != nil {
				t.Error(err)
			}
		}
		var sockets []*socket
		for n := range bounds.AllUnread / (bounds.Held / 2) {
			s, bytes := connects(c, fmt.Sprintf("viewer %d", n)), part
			if n == 3 {
				bytes += 10
			}
			keep(s, bytes)
			sockets = append(sockets, s)
		}
		last := connects(c, "vera")
		keep(last, part/2)
		synctest.Wait()
		for n, s := range sockets {
			if s.closed() != (n == 3) {
				t.Errorf("connection %d: closed %t", n, s.closed())
			}
		}
		if of, unread := c.heldOf("vera"); last.closed() || of == 0 || unread > bounds.AllUnread {
			t.Errorf("closed %t; %d bytes are held, and %d of all", last.closed(), of, unread)
		}
	})
}
