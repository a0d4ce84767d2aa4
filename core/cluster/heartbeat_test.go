package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestHeartbeatsGoOnOneStream counts the streams: a new one for each heartbeat would cost a curator more than the heartbeat does.
func TestHeartbeatsGoOnOneStream(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		s.contact(true)
		time.Sleep(10 * ttl)
		synctest.Wait()
		if opened, _ := s.curator.opened.Get(); opened != 1 || s.curator.count("Heartbeat") < 30 {
			t.Errorf("%d heartbeats came on %d streams", s.curator.count("Heartbeat"), opened)
		}
		s.curator.set(func(r *rules) { r.refuse = status.Error(codes.Unavailable, "the store has no quorum") })
		s.contact(false)
		s.curator.set(func(r *rules) { r.refuse = nil })
		s.contact(true)
		before, _ := s.curator.opened.Get()
		beats := s.curator.count("Heartbeat")
		time.Sleep(10 * ttl)
		synctest.Wait()
		if opened, _ := s.curator.opened.Get(); opened != before || s.curator.count("Heartbeat") < beats+30 {
			t.Errorf("after it was refused, %d heartbeats came on %d streams more", s.curator.count("Heartbeat")-beats, opened-before)
		}
	})
}

// TestHeartbeatsToAnOlderCurator has the curator be replaced while the cluster is upgraded, and back: contact is not lost for a moment.
func TestHeartbeatsToAnOlderCurator(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		s.curator.set(func(r *rules) { r.older = true })
		down := s.up("a:1")
		s.curatorAt("i1", "a:1")
		s.contact(true)
		lost := s.client.Contact().Watch()
		if _, err := lost.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		streams := 0
		for _, older := range []bool{true, false, true, false} {
			s.curator.set(func(r *rules) { r.older = older })
			down()
			down = s.up("a:1")
			beats := s.curator.count("Heartbeat")
			time.Sleep(10 * ttl)
			synctest.Wait()
			opened, _ := s.curator.opened.Get()
			if s.curator.count("Heartbeat") < beats+29 || older != (opened == streams) {
				t.Errorf("older: %t; %d heartbeats came, on %d streams more", older, s.curator.count("Heartbeat")-beats, opened-streams)
			}
			streams = opened
		}
		down()
		select {
		case <-lost.Changed():
			t.Error("contact was lost")
		default:
		}
	})
}
