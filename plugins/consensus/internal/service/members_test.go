package service_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestShrink takes members out until the first one of those that are left is alone, the leader among those that go.
func TestShrink(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2", "reeve-3")
	last := c.nodes["reeve-3"].client()
	c.want(client, "reeve-2", "reeve-3")
	c.await(last, "two are left", settled("reeve-2", "reeve-3"))
	c.gone("reeve-1")
	c.want(last, "reeve-3")
	c.await(last, "one is left", settled("reeve-3"))
	c.gone("reeve-2")
	if _, err := last.Put(storetest.Context(t), "/reeve/users/curator/alone", "1"); err != nil {
		t.Fatal(err)
	}
	// The last one cannot go, and says so.
	c.want(last, "reeve-9")
	c.await(last, "the last one is refused", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 2 && s.Members[0].Stuck && strings.Contains(s.Members[0].Step, "last one")
	})
	// Who was removed has nothing left, and may come again.
	c.want(last, "reeve-1", "reeve-3")
	if err := c.nodes["reeve-1"].form("existing"); problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING {
		t.Errorf("a removed member as an existing one: %v", err)
	}
	c.nodes["reeve-1"].join()
	c.await(last, "it is back", settled("reeve-1", "reeve-3"))
}

// gone waits until the role of a node has found that its member was removed.
func (c *cluster) gone(id string) {
	c.t.Helper()
	data := filepath.Join(c.root, id, "data")
	storetest.Eventually(c.t, "the removed member of "+id+" is wiped", func() bool {
		_, err := os.Lstat(filepath.Join(data, "etcd"))
		_, errPeer := os.Lstat(filepath.Join(data, "peer"))
		return os.IsNotExist(err) && os.IsNotExist(errPeer) && strings.Contains(c.nodes[id].reporter.last(), "removed")
	})
}

// TestQuorumIsKept refuses a removal that would cost the quorum, with the names of those in the way, and carries it out when they are back.
func TestQuorumIsKept(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2", "reeve-3")
	c.nodes["reeve-3"].stop()
	c.want(client, "reeve-1", "reeve-3")
	c.await(client, "the removal is refused", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 3 && s.Members[1].Stuck && strings.Contains(s.Members[1].Step, "reeve-3 do not answer") && !s.Members[2].Healthy
	})
	// The one that does not answer may go: nobody misses it.
	c.want(client, "reeve-1", "reeve-2")
	c.await(client, "the silent one goes", settled("reeve-1", "reeve-2"))
	// When it comes back it learns that it was removed, although nobody lets it in.
	back := c.start("reeve-3")
	if err := back.answered("existing"); problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING {
		t.Errorf("a member that was removed while it was away: %v", err)
	}
	c.want(client, "reeve-1", "reeve-2", "reeve-3")
	back.join()
	c.await(client, "it votes again", settled("reeve-1", "reeve-2", "reeve-3"))
}

// TestQuorumLossNamesTheSilent says who is missing when there is no quorum.
func TestQuorumLossNamesTheSilent(t *testing.T) {
	c, _ := grown(t, "reeve-1", "reeve-2", "reeve-3")
	c.nodes["reeve-2"].stop()
	c.nodes["reeve-3"].stop()
	storetest.Eventually(t, "the reason names them", func() bool {
		return strings.Contains(c.nodes["reeve-1"].reporter.last(), "those of reeve-2, reeve-3 do not answer")
	})
}

// TestRestartOfAll starts all members again at the same time.
func TestRestartOfAll(t *testing.T) {
	ids := []string{"reeve-1", "reeve-2", "reeve-3"}
	c, client := grown(t, ids...)
	c.put(client, "kept", "1")
	for _, id := range ids {
		c.nodes[id].stop()
	}
	var forming sync.WaitGroup
	for _, id := range ids {
		again := c.start(id)
		forming.Go(func() {
			if err := again.form("existing"); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	forming.Wait()
	client = c.nodes["reeve-2"].client()
	answer, err := client.Get(storetest.Context(t), "/reeve/users/curator/kept")
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("after the restart: %v, %v", answer, err)
	}
	c.await(client, "all are well", settled(ids...))
}

// TestLostDataIsRefused has a node come back with nothing: the store still has its member.
func TestLostDataIsRefused(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2", "reeve-3")
	c.nodes["reeve-2"].stop()
	if err := os.RemoveAll(filepath.Join(c.root, "reeve-2", "data")); err != nil {
		t.Fatal(err)
	}
	lost := c.start("reeve-2")
	err := lost.answered("join")
	if problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING || !strings.Contains(err.Error(), "another member of this node") {
		t.Fatalf("a node that lost its data joins: %v", err)
	}
	// The way out that the refusal names.
	c.want(client, "reeve-1", "reeve-3")
	c.await(client, "the lost member is out", settled("reeve-1", "reeve-3"))
	c.want(client, "reeve-1", "reeve-2", "reeve-3")
	lost.join()
	c.await(client, "a new one is in", settled("reeve-1", "reeve-2", "reeve-3"))
}

// TestAddressChange moves a member to another port.
func TestAddressChange(t *testing.T) {
	c, client := grown(t, "reeve-1", "reeve-2", "reeve-3")
	stream, err := c.nodes["reeve-1"].WatchStore(storetest.Context(t), &consensusv1.WatchStoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	(&follower{stream: stream, t: t}).until("the members are named", func(s *consensusv1.StoreStatus) bool {
		var names []string
		for _, member := range s.Members {
			names = append(names, member.Name)
		}
		slices.Sort(names)
		return slices.Equal(names, []string{"reeve-1", "reeve-2", "reeve-3"})
	})
	c.nodes["reeve-2"].wire.addresses.Set([]string{"127.0.0.2"}) // configured is an address of its own, which stays
	c.nodes["reeve-3"].stop()
	moved := c.start("reeve-3", func(config *service.Config) { config.PeerListen = "127.0.0.3:0" })
	if err := moved.form("existing"); err != nil {
		t.Fatal(err)
	}
	c.nodes["reeve-2"].stop() // only the moved one can make a quorum with the first
	c.put(client, "moved", "1")
	c.await(client, "the moved one answers", func(s *consensusv1.StoreState) bool {
		return len(s.Members) == 3 && s.Members[2].Healthy && !s.Members[1].Healthy
	})
}

// TestStrangersCannotJoin refuses who is not to have a member, and who is no member's role.
func TestStrangersCannotJoin(t *testing.T) {
	c, _ := grown(t, "reeve-1")
	storetest.Eventually(t, "the first one serves", func() bool { return len((&wire{directory: c.directory}).Nodes()) == 1 })
	for _, id := range []string{"reeve-8", "stranger"} {
		if err := c.start(id).form("join"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "reeve-1") {
			t.Errorf("%s: %v", id, err)
		}
	}
}
