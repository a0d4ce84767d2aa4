package cluster_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/membership"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const ttl = 30 * time.Second

// scene is a node and its curator on a fake clock and a network of pipes.
type scene struct {
	*node
	curator *curator
	net     *pipes
	// up serves at an address; the function that it returns takes it down.
	up func(address string) (down func())
}

// onFakeClock runs a test with contact established at the bubble's start.
func onFakeClock(t *testing.T, test func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{net: newPipes()}
		s.node = newNode(t, s.net.dial)
		s.curator = newCurator(s.ca.curatorCertificate())
		s.curator.view.Set(s.response(7))
		s.up = func(address string) func() {
			stop := s.curator.serve(t, s.net.listen(address))
			return func() { s.net.close(address); stop() }
		}
		defer s.run()()
		test(t, s)
	})
}

// lastBeat is when the last heartbeat came.
func (s *scene) lastBeat() time.Time {
	s.t.Helper()
	calls, _ := s.curator.calls.Get()
	for i := len(calls) - 1; i >= 0; i-- {
		if calls[i].method == "Heartbeat" {
			return calls[i].at
		}
	}
	s.t.Fatal("no heartbeat came")
	return time.Time{}
}

func TestContactIsKeptWhileTheCuratorRestarts(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		down := s.up("a:1")
		s.curatorAt("i1", "a:1")
		s.contact(true)
		changes := s.client.Contact().Watch()
		if _, err := changes.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		for restart := range 3 {
			down()
			s.capabilities.Set(nil)
			time.Sleep(ttl/3*2 - time.Second) // on the fake clock
			before := s.curator.count("Heartbeat")
			down = s.up("a:2")
			s.curatorAt("i"+string(rune('2'+restart)), "a:2")
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if s.curator.count("Heartbeat") == before {
				t.Fatalf("restart %d: no heartbeat within 100 ms of the curator's return", restart)
			}
		}
		select {
		case <-changes.Changed():
			contact, _ := s.client.Contact().Get()
			t.Fatalf("contact changed although the curator was away for less than the TTL: %+v", contact)
		default:
		}
		down()
	})
}

func TestContactIsLostAfterTheTTLAndComesBack(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		down := s.up("a:1")
		s.curatorAt("i1", "a:1")
		s.contact(true)
		time.Sleep(3*ttl + time.Second)
		last := s.lastBeat()
		down()
		lost := s.contact(false)
		if took := time.Since(last); took != ttl {
			t.Errorf("contact was lost %v after the last heartbeat, want %v", took, ttl)
		}
		for _, part := range []string{
			"no heartbeat has reached the cluster since " + last.UTC().Format(time.RFC3339), "i1", "a:1", "Unavailable", "connection refused",
		} {
			if !strings.Contains(lost.Reason, part) {
				t.Errorf("the reason %q does not say %q", lost.Reason, part)
			}
		}
		view, ok := s.client.View().Get()
		if !ok || view.Revision != 7 {
			t.Errorf("the view was not kept: %+v", view)
		}
		time.Sleep(10 * time.Minute)
		// The same instance at the same address: only the connection's own attempts bring it back.
		defer s.up("a:1")()
		began := time.Now()
		s.contact(true)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("contact came back after %v", took)
		}
	})
}

func TestAllWorkersAreBackWithTheConnection(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		down := s.up("a:1")
		s.curatorAt("i1", "a:1")
		for range 10 {
			s.contact(true)
			down()
			s.contact(false)
			before := s.net.dialled()
			for s.net.dialled() == before {
				time.Sleep(time.Millisecond)
			}
			// An attempt to connect has just failed; the next one succeeds.
			down = s.up("a:1")
			for before = s.net.dialled(); s.net.dialled() == before; {
				time.Sleep(time.Millisecond)
			}
			began := time.Now()
			s.contact(true)
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Fatalf("contact came back %v after the connection", took)
			}
		}
		down()
	})
}

func TestContactIsLostWhileTheProviderIsGone(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		down := s.up("a:1")
		s.curatorAt("i1", "a:1")
		s.contact(true)
		gone := time.Now()
		down()
		s.capabilities.Set(nil)
		reason := s.contact(false).Reason
		if time.Since(gone) > ttl {
			t.Errorf("contact was lost after %v", time.Since(gone))
		}
		for _, part := range []string{"no role that runs on this node provides reeve.cluster.v1", "since " + gone.UTC().Format(time.RFC3339)} {
			if !strings.Contains(reason, part) {
				t.Errorf("the reason %q does not say %q", reason, part)
			}
		}
	})
}

func TestContactIsLostWhenOnlyTheWatchIsBroken(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		s.contact(true)
		time.Sleep(5 * time.Second)
		broken := time.Now()
		s.curator.endWatches.Set(status.Error(codes.Internal, "the cache is broken"))
		reason := s.contact(false).Reason
		if took := time.Since(broken); took != ttl {
			t.Errorf("contact was lost %v after the watch broke, want %v", took, ttl)
		}
		for _, part := range []string{"no watch of the cluster has been open since " + broken.UTC().Format(time.RFC3339), "Internal: the cache is broken"} {
			if !strings.Contains(reason, part) {
				t.Errorf("the reason %q does not say %q", reason, part)
			}
		}
		if s.curator.count("Heartbeat") < 2 {
			t.Error("the heartbeat stopped with the watch")
		}
		s.curator.endWatches.Set(nil)
		s.contact(true)
	})
}

func TestNoContactFromAWatchThatDeliversNothing(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		s.curator.view = new(event.Value[*clusterv1.WatchResponse])
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		s.reason(func(reason string) bool { return strings.Contains(reason, "sent nothing for 10s") })
		if n := s.curator.count("Heartbeat"); n == 0 {
			t.Error("no heartbeat came")
		}
		s.curator.view.Set(s.response(8))
		s.contact(true)
	})
}

func TestAWatchThatKeepsEndingIsOpenedMoreSlowly(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		s.curator.set(func(r *rules) { r.oneView = true })
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		time.Sleep(10 * time.Minute)
		if n := s.curator.count("Watch"); n < 200 || n > 700 {
			t.Errorf("%d watches in 10 minutes", n)
		}
	})
}

func TestAStoppedCuratorIsNoticed(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		down := s.up("a:1")
		s.curatorAt("i1", "a:1")
		s.contact(true)
		last, dials := s.lastBeat(), s.net.dialled()
		s.net.freeze(true)
		reason := s.contact(false).Reason
		if took := time.Since(last); took != ttl {
			t.Errorf("contact was lost %v after the last heartbeat, want %v", took, ttl)
		}
		if s.net.dialled() == dials {
			t.Error("the dead connection was not given up")
		}
		if !strings.Contains(reason, "heartbeat to i1 at a:1") {
			t.Errorf("the reason is %q", reason)
		}
		s.net.freeze(false)
		s.contact(true)
		down()
	})
}

func TestARefusalIsTheReason(t *testing.T) {
	for _, code := range []codes.Code{codes.Unauthenticated, codes.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			onFakeClock(t, func(t *testing.T, s *scene) {
				s.curator.set(func(r *rules) { r.refuse = status.Error(code, "node is not in the cluster") })
				defer s.up("a:1")()
				s.curatorAt("i1", "a:1")
				s.reason(func(reason string) bool {
					return strings.Contains(reason, "the curator refuses this node ("+code.String()+"): node is not in the cluster")
				})
				s.curator.set(func(r *rules) { r.refuse = nil })
				s.contact(true)
			})
		})
	}
}

func TestASlowHeartbeatIsNone(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		s.contact(true)
		hold := make(chan struct{})
		s.curator.set(func(r *rules) { r.hold = hold })
		reason := s.contact(false).Reason
		if !strings.Contains(reason, "did not answer in time") {
			t.Errorf("the reason is %q", reason)
		}
		s.curator.set(func(r *rules) { r.hold = nil })
		close(hold)
		s.contact(true)
	})
}

func TestHeartbeatsComeThreeTimesPerTTL(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		s.contact(true)
		time.Sleep(10 * ttl)
		calls, _ := s.curator.calls.Get()
		var last time.Time
		beats := 0
		for _, call := range calls {
			if call.method != "Heartbeat" {
				continue
			}
			if !last.IsZero() && call.at.Sub(last) != ttl/3 {
				t.Errorf("a heartbeat came %v after the one before", call.at.Sub(last))
			}
			last = call.at
			beats++
		}
		if beats < 30 {
			t.Errorf("%d heartbeats in ten TTLs", beats)
		}
	})
}

func TestReasonsBeforeTheFirstContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newPipes().dial)
		if contact, ok := n.client.Contact().Get(); !ok || contact.OK || contact.Reason == "" {
			t.Errorf("before Run contact is %+v, %v", contact, ok)
		}
		known, _ := n.identity.Get()
		unknown := *known
		unknown.CA = nil
		n.identity.Set(&unknown)
		defer n.run()()
		says := func(part string) {
			t.Helper()
			n.reason(func(reason string) bool { return strings.Contains(reason, part) })
		}
		says("does not know the certificates of its cluster's CA")
		n.identity.Set(known)
		says("no role that runs on this node provides reeve.cluster.v1")
		n.curatorAt("i1", "")
		says("i1, which provides reeve.cluster.v1, has not published its endpoint")
		n.curatorAt("i1", "nowhere")
		says(`i1 published the endpoint "nowhere"`)
		n.curatorAt("i1", "127.0.0.1:0")
		says("no port")
		n.curatorAt("i1", "https://b:2/path")
		says("dial b:2: connection refused")
		if contact, _ := n.client.Contact().Get(); contact == (membership.Contact{}) {
			t.Error("contact without a reason")
		}
	})
}
