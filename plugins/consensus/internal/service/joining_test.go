package service_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestJoinerKilledAfterItsPromotion has a member vote that was killed before it could note that it had joined: without it nobody has a quorum to answer it.
func TestJoinerKilledAfterItsPromotion(t *testing.T) {
	c, _ := grown(t, "reeve-1", "reeve-2")
	c.nodes["reeve-1"].stop()
	c.nodes["reeve-2"].stop()
	path := filepath.Join(c.root, "reeve-2", "data", "store.json")
	marker, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Replace(string(marker), `"complete"`, `"joining"`, 1)
	if before == string(marker) {
		t.Fatalf("the marker of a member that has joined: %s", marker)
	}
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	var forming sync.WaitGroup
	first := c.start("reeve-1")
	forming.Go(func() {
		if err := first.form("existing"); err != nil {
			t.Errorf("the one that was there before: %v", err)
		}
	})
	c.start("reeve-2").join()
	forming.Wait()
	c.await(first.client(), "both vote", settled("reeve-1", "reeve-2"))
}

// silent has the first node of the directory be one that accepts connections and never says anything, and counts them.
func silent(c *cluster) *atomic.Int64 {
	c.t.Helper()
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	var accepted atomic.Int64
	var holding sync.WaitGroup
	holding.Go(func() {
		for {
			conn, err := hole.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			defer conn.Close()
		}
	})
	c.t.Cleanup(func() {
		hole.Close()
		holding.Wait()
	})
	c.directory.mu.Lock()
	defer c.directory.mu.Unlock()
	c.directory.places["reeve-0"] = hole.Addr().String()
	return &accepted
}

// TestBlackHoleHoldsNobodyUp joins while the first node of the directory accepts connections and never says anything.
func TestBlackHoleHoldsNobodyUp(t *testing.T) {
	c := newCluster(t)
	accepted := silent(c)
	first := c.start("reeve-1")
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	c.want(client, "reeve-1", "reeve-2")
	second := c.start("reeve-2")
	ctx := storetest.Context(t)
	request := &consensusv1.FormRequest{ClusterId: "cluster-a", NodeId: "reeve-2", ClusterUser: "curator", How: &consensusv1.FormRequest_Join{Join: &consensusv1.FormJoin{}}}
	storetest.Eventually(t, "the first one serves", func() bool { return len(second.wire.Nodes()) == 2 })
	var err error
	for err = status.Error(codes.Unavailable, "not asked yet"); status.Code(err) == codes.Unavailable; { // as the core does while it is told to wait
		accepted = silent(c) // another one, which nobody calls for an attempt that is over
		second.wire.looks.Store(0)
		_, err = second.Form(ctx, request)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A member that does not answer is given up after a while, and called again. One that joins slowly asks all more than once.
	if calls, asked := accepted.Load(), second.wire.looks.Load(); calls > asked {
		t.Errorf("the silent one was given up %d times before the other one was heard", calls-asked)
	}
	c.await(client, "both vote", settled("reeve-1", "reeve-2"))
}
