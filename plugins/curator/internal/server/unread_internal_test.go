package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/nodes"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func (p *peers) heldOf(caller string) (of, unread int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[caller], p.unread
}

// called is somebody who was let in on a connection.
func called(t *testing.T, p *peers, address, caller string) *socket {
	t.Helper()
	s := connects(t, p, address, 1)
	p.letIn(s.call(), "")
	p.belongs(s.call(), caller)
	return s
}

func answerOf(bytes int) *clusterv1.GetNodeResponse {
	return &clusterv1.GetNodeResponse{Node: &clusterv1.Node{Record: &clusterv1.NodeRecord{Id: strings.Repeat("x", bytes)}}}
}

// Calls are held against their caller for as long as they last, with their requests.
func TestCallsUnderWayOfACaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		one, two, other := called(t, p, "192.0.2.2", "vera"), called(t, p, "192.0.2.3", "vera"), called(t, p, "192.0.2.4", "victor")
		var ends []func()
		for n := range callerHeld / callHolds {
			end, err := p.carryOut([]*socket{one, two}[n%2].call(), nil)
			if err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			ends = append(ends, end)
		}
		if _, err := p.carryOut(one.call(), nil); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one call more: %v", err)
		}
		if end, err := p.carryOut(other.call(), nil); err != nil {
			t.Error(err)
		} else {
			ends = append(ends, end)
		}
		for _, end := range ends {
			end()
		}
		end, err := p.carryOut(one.call(), answerOf(callerHeld/2))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.carryOut(one.call(), answerOf(callerHeld/2)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("requests of 64 MiB: %v", err)
		}
		end()
		if len(p.held) != 0 {
			t.Errorf("when all have ended there are %v", p.held)
		}
		time.Sleep(strangerFor)
	})
}

// An answer that is never sent is held until its call has ended, and one that gRPC has until it gives it back, or the stream was reset, or the connection has ended.
func TestAnswersAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		s := called(t, p, "192.0.2.2", "vera")
		shared := &nodes.Encoded{Shared: make([]byte, 3000), Own: []byte("own")}
		for name, release := range map[string]struct {
			encoded, answered, given, closed bool
		}{
			"never sent, since something else became of it": {answered: true},
			"reset":  {encoded: true},
			"read":   {encoded: true, answered: true, given: true},
			"closed": {encoded: true, answered: true, closed: true},
		} {
			for _, answer := range []any{answerOf(10), shared} {
				if s.closed() {
					s = called(t, p, "192.0.2.2", "vera")
				}
				ctx, end := s.asks(t, p)
				message, err := p.keep(ctx, answer)
				if err != nil {
					t.Fatal(err)
				}
				all, alone := size(answer)
				if of, unread := p.heldOf("vera"); of != answerHolds+all || unread != answerHolds+alone {
					t.Errorf("%s: %d bytes are held, and %d of all", name, of, unread)
				}
				if release.encoded {
					encoded, err := message.(*held).encode()
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
						if of, _ := p.heldOf("vera"); of == 0 {
							t.Errorf("%s: it is not held when one byte is left", name)
						}
						if err := reader.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if release.answered {
					p.HandleRPC(ctx, &stats.OutTrailer{})
				}
				p.HandleRPC(ctx, &stats.End{})
				end()
				if release.closed {
					if of, _ := p.heldOf("vera"); of == 0 {
						t.Errorf("%s: it is not held", name)
					}
					_ = s.connection.Close()
				}
				if of, unread := p.heldOf("vera"); of != 0 || unread != 0 {
					t.Errorf("%s: %d bytes are held, and %d of all", name, of, unread)
				}
			}
		}
		synctest.Wait()
		time.Sleep(strangerFor)
	})
}

// sent is a stream that takes everything, and gives nothing back.
type sent struct {
	grpc.ServerStream
	ctx context.Context
}

func (s sent) Context() context.Context { return s.ctx }

func (sent) SendMsg(any) error { return nil }

// The answers to heartbeats have two bytes, and gRPC takes ten thousand of them of a stream that is not read: what is around each counts. And of what many are told alike there is one.
func TestMessagesOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		s := called(t, p, "192.0.2.2", "vera")
		ctx, end := s.asks(t, p)
		defer end()
		stream := &keeping{ServerStream: sent{ctx: ctx}, peers: p}
		messages, err := 0, error(nil)
		for ; err == nil && messages <= callerHeld/answerHolds; messages++ {
			err = stream.SendMsg(&clusterv1.KeepAliveResponse{TtlSeconds: 10})
		}
		if status.Code(err) != codes.ResourceExhausted || messages > callerHeld/answerHolds {
			t.Errorf("after %d messages: %v", messages, err)
		}
		if of, unread := p.heldOf("vera"); of > callerHeld || of != unread {
			t.Errorf("%d bytes are held, and %d of all", of, unread)
		}
		directory := make([]byte, 1<<20)
		var told []*socket
		for n := range 2 * mostUnread / len(directory) {
			node := called(t, p, fmt.Sprintf("192.0.2.%d", 3+n%250), fmt.Sprintf("node %d", n))
			ctx, end := node.asks(t, p)
			defer end()
			if err := (&keeping{ServerStream: sent{ctx: ctx}, peers: p}).SendMsg(&nodes.Encoded{Shared: directory}); err != nil {
				t.Fatalf("node %d: %v", n, err)
			}
			told = append(told, node)
		}
		synctest.Wait()
		if slices.ContainsFunc(told, (*socket).closed) {
			t.Error("a node loses its connection for a directory that all are told")
		}
		_ = s.connection.Close()
		time.Sleep(strangerFor)
	})
}

// Where all together do not read too much, who has the most of it goes, and who asks is answered.
func TestUnreadAnswersOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers()
		const part = callerHeld/2 - answerHolds - 100
		keep := func(s *socket, bytes int) {
			t.Helper()
			ctx, end := context.WithCancel(s.call())
			t.Cleanup(end)
			ctx, err := p.admit(ctx, nil)
			if err == nil {
				_, err = p.keep(ctx, answerOf(bytes))
			}
			if err != nil {
				t.Error(err)
			}
		}
		var sockets []*socket
		for n := range mostUnread / (callerHeld / 2) {
			s := called(t, p, fmt.Sprintf("192.0.2.%d", n+1), fmt.Sprintf("viewer %d", n))
			bytes := part
			if n == 3 {
				bytes += 10
			}
			keep(s, bytes)
			sockets = append(sockets, s)
		}
		last := called(t, p, "198.51.100.1", "vera")
		keep(last, part/2)
		synctest.Wait()
		for n, s := range sockets {
			if s.closed() != (n == 3) {
				t.Errorf("connection %d: closed %t", n, s.closed())
			}
		}
		if of, unread := p.heldOf("vera"); last.closed() || of == 0 || unread > mostUnread {
			t.Errorf("closed %t; %d bytes are held, and %d of all", last.closed(), of, unread)
		}
		time.Sleep(strangerFor)
	})
}
