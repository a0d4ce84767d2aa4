package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// A directory that comes in several messages is none before all of it is there, however long they take, and none at all if its stream is cut in the midst of them.
func TestADirectoryInParts(t *testing.T) {
	onFakeClock(t, func(t *testing.T, s *scene) {
		s.curator.view = new(event.Value[*clusterv1.WatchResponse])
		defer s.up("a:1")()
		s.curatorAt("i1", "a:1")
		directory := func(revision uint64, id string) *clusterv1.WatchResponse {
			return &clusterv1.WatchResponse{Directory: &hostv1.Directory{Revision: revision, Nodes: []*hostv1.DirectoryNode{{NodeId: id}}}, More: true}
		}
		next := func(id string) *clusterv1.WatchResponse {
			return &clusterv1.WatchResponse{Difference: &clusterv1.DirectoryDifference{From: 8, Revision: 8, Nodes: []*hostv1.DirectoryNode{{NodeId: id}}}, More: true}
		}
		for _, part := range []*clusterv1.WatchResponse{directory(8, "a"), next("b")} {
			s.curator.view.Set(part)
			time.Sleep(8 * time.Second) // on the fake clock
			synctest.Wait()
			if view, is := s.client.View().Get(); is {
				t.Fatalf("a part of the directory was taken for the whole: %v", view.Directory)
			}
		}
		last := next("c")
		last.Revision, last.Node, last.More = 8, s.response(8).GetNode(), false
		s.curator.view.Set(last)
		synctest.Wait()
		if view, _ := s.client.View().Get(); view == nil || len(view.Directory.GetNodes()) != 3 {
			t.Fatalf("the view is %+v", view)
		}
		if n := s.curator.count("Watch"); n != 1 {
			t.Errorf("there were %d watches", n)
		}
		s.curator.set(func(r *rules) { r.oneView = true })
		s.curator.view.Set(directory(9, "d"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.curator.count("Watch"); n < 3 {
			t.Fatalf("there were %d watches", n)
		}
		if view, _ := s.client.View().Get(); len(view.Directory.GetNodes()) != 3 {
			t.Errorf("a part of the directory was taken for the whole: %v", view.Directory)
		}
	})
}
