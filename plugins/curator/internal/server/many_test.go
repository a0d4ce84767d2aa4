package server_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// many adds the records of so many nodes with roles, and returns their IDs.
func (c *cluster) many(count int, roles ...string) (ids []string) {
	c.t.Helper()
	var nodes []*clusterv1.NodeRecord
	for n := range count {
		key := sha256.Sum256([]byte(fmt.Sprint(n)))
		node := &clusterv1.NodeRecord{Id: identity.NodeID(key[:]), PublicKey: key[:], State: clusterv1.NodeState_NODE_STATE_UP, Generation: 1}
		for _, role := range roles {
			node.Roles = append(node.Roles, &clusterv1.RoleAssignment{Role: role, Generation: 1})
		}
		nodes, ids = append(nodes, node), append(ids, node.GetId())
	}
	slices.Sort(ids)
	for part := range slices.Chunk(nodes, 100) {
		c.update(func(*store.State) *store.Change { return &store.Change{Nodes: part} })
	}
	return ids
}

// TestLabelsOfAllNodesAreBounded: every node is sent the labels of all, in one message for each role that follows the directory.
func TestLabelsOfAllNodesAreBounded(t *testing.T) {
	c := newCluster(t)
	labels := func(count int) map[string]string {
		made := make(map[string]string)
		for n := range count {
			made[fmt.Sprintf("%s%03d", strings.Repeat("k", 100), n)] = strings.Repeat("v", 200)
		}
		return made
	}
	ids := c.many(216)
	set := func(as clusterv1.ManagementServiceClient, id string, labels map[string]string) error {
		_, err := as.SetLabels(t.Context(), &clusterv1.SetLabelsRequest{NodeId: id, Labels: labels})
		return err
	}
	// Those of an earlier version may be more than fit now.
	fill := func(ids []string) {
		for part := range slices.Chunk(ids, 40) {
			c.update(func(state *store.State) *store.Change {
				change := new(store.Change)
				for _, id := range part {
					node := proto.CloneOf(state.Nodes[id])
					node.Labels = labels(64)
					change.Nodes = append(change.Nodes, node)
				}
				return change
			})
		}
	}
	owner, operator := c.asOwner(), c.addOperator("olaf", roleOperator).client()
	wantCode(t, set(owner, ids[0], labels(64)), codes.InvalidArgument, "the labels of a node would have", "4096")
	if err := set(operator, ids[0], labels(12)); err != nil {
		t.Error(err)
	}
	// Operators leave some for owners.
	fill(ids[3:193])
	wantCode(t, set(operator, ids[1], labels(13)), codes.InvalidArgument, "the labels of all nodes would have")
	if err := set(owner, ids[1], labels(13)); err != nil {
		t.Error(err)
	}
	fill(ids[193:])
	wantCode(t, set(owner, ids[2], labels(13)), codes.InvalidArgument, "the labels of all nodes would have")
	// What takes less is always let through.
	if err := set(operator, ids[9], map[string]string{fmt.Sprintf("%s%03d", strings.Repeat("k", 100), 7): ""}); err != nil {
		t.Error(err)
	}
}

// TestRemovePluginFromManyNodes takes more roles than one transaction does.
func TestRemovePluginFromManyNodes(t *testing.T) {
	c := newCluster(t)
	c.approve(c.offer(lamp("1.0.0"), digestOf("a")))
	ids := c.many(250, "lamp")
	remove := &clusterv1.RemovePluginRequest{Name: "lamp", RemoveRoles: true, Wipe: true, DryRun: true}
	shown, err := c.asOwner().RemovePlugin(t.Context(), remove)
	if err != nil || !slices.Equal(shown.GetNodes(), ids) {
		t.Errorf("a dry run: %d nodes, %v", len(shown.GetNodes()), err)
	}
	before, _ := c.stored()
	remove.DryRun = false
	removed, err := c.asOwner().RemovePlugin(t.Context(), remove)
	if err != nil || !slices.Equal(removed.GetNodes(), ids) || removed.GetPlugin().GetName() != "lamp" {
		t.Errorf("%d nodes, %v", len(removed.GetNodes()), err)
	}
	after, desired := c.stored()
	if after.Plugins["lamp"] != nil || usersOf(desired) != "beam wiped lamp" || after.Epoch != before.Epoch+3 {
		t.Errorf("%v, %v, epoch %d after %d", after.PluginNames(), desired, after.Epoch, before.Epoch)
	}
	for _, id := range ids {
		if node := after.Nodes[id]; len(node.GetRoles()) != 0 || fmt.Sprint(node.GetWipedRoles()) != "[lamp]" {
			t.Fatalf("%v", node)
		}
	}
}

// TestRemovePluginResumes goes on where one ended that was interrupted.
func TestRemovePluginResumes(t *testing.T) {
	c := newCluster(t)
	c.approve(c.offer(lamp("1.0.0"), digestOf("a")))
	ids := c.many(150, "lamp")
	remove := &clusterv1.RemovePluginRequest{Name: "lamp", RemoveRoles: true}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		// The caller goes away as soon as the first part is written.
		for watch := range c.client().Watch(ctx, "nodes/"+ids[0]) {
			if len(watch.Events) > 0 {
				cancel()
			}
		}
	}()
	if _, err := c.asOwner().RemovePlugin(ctx, remove); err != nil {
		wantCode(t, err, codes.Canceled)
	}
	cancel()
	<-watched
	if _, err := c.asOwner().RemovePlugin(t.Context(), remove); err != nil {
		// The first one may have come to its end all the same.
		wantCode(t, err, codes.NotFound)
	}
	after, _ := c.stored()
	for _, id := range ids {
		if len(after.Nodes[id].GetRoles()) != 0 {
			t.Fatalf("%v", after.Nodes[id])
		}
	}
	if after.Plugins["lamp"] != nil {
		t.Error("the plugin is there")
	}
}

// TestRemovePluginSaysHowFar has the second part of a removal fail, and says what was done. The same call goes on when what was in the way is gone.
func TestRemovePluginSaysHowFar(t *testing.T) {
	c := newCluster(t)
	c.approve(c.offer(lamp("1.0.0"), digestOf("a")))
	ids := c.many(250, "lamp")
	state, _ := c.stored()
	put := func(label string) {
		node := proto.CloneOf(state.Nodes[ids[120]])
		node.Labels = map[string]string{"large": label}
		record, err := proto.Marshal(node)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.client().Put(t.Context(), "nodes/"+node.GetId(), string(record)); err != nil {
			t.Fatal(err)
		}
		// Whoever writes records counts the epoch up.
		c.update(func(*store.State) *store.Change { return new(store.Change) })
	}
	// The store has more room than one transaction of the curator's.
	put(strings.Repeat("l", 1300<<10))
	remove := &clusterv1.RemovePluginRequest{Name: "lamp", RemoveRoles: true}
	_, err := c.asOwner().RemovePlugin(t.Context(), remove)
	wantCode(t, err, codes.ResourceExhausted)
	for _, part := range []string{"100 nodes have lost the roles", "150 are left", "the same command goes on"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: it does not say %q", err, part)
		}
	}
	put("")
	removed, err := c.asOwner().RemovePlugin(t.Context(), remove)
	if err != nil || !slices.Equal(removed.GetNodes(), ids[100:]) {
		t.Errorf("%d nodes, %v", len(removed.GetNodes()), err)
	}
}

// TestListNodesByPages lists many nodes, some of which have much to say, by answers that are not too large.
func TestListNodesByPages(t *testing.T) {
	c := newCluster(t)
	ids := append(c.many(50), c.id)
	slices.Sort(ids)
	const large = limits.Report - 100
	report := func(ids []string) {
		for _, id := range ids {
			status, err := proto.Marshal(&clusterv1.NodeStatus{NodeId: id, Volume: strings.Repeat("v", large)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.client().Put(t.Context(), "status/"+id, string(status)); err != nil {
				t.Fatal(err)
			}
		}
	}
	report(ids[5:25])
	// A command line that knows no pages is answered with all, or not at all.
	if all, err := c.asOwner().ListNodes(t.Context(), new(clusterv1.ListNodesRequest), grpc.MaxCallRecvMsgSize(limits.Message)); err != nil || len(all.GetNodes()) != len(ids) || all.GetMore() {
		t.Errorf("all at once: %d nodes, %v", len(all.GetNodes()), err)
	}
	report(ids[25:40])
	_, err := c.asOwner().ListNodes(t.Context(), new(clusterv1.ListNodesRequest), grpc.MaxCallRecvMsgSize(2*limits.Message))
	wantCode(t, err, codes.ResourceExhausted)
	for _, limit := range []uint32{7, 1000, 1 << 31} {
		var listed []string
		request := &clusterv1.ListNodesRequest{Limit: limit}
		for more := true; more; {
			page, err := c.asOwner().ListNodes(t.Context(), request, grpc.MaxCallRecvMsgSize(limits.Message/2))
			if err != nil {
				t.Fatal(err)
			}
			if size := proto.Size(page); size > limits.Message/2 || len(page.GetNodes()) > int(limit) || len(page.GetNodes()) == 0 {
				t.Fatalf("%d nodes, %d bytes", len(page.GetNodes()), size)
			}
			for _, node := range page.GetNodes() {
				id := node.GetRecord().GetId()
				listed = append(listed, id)
				if slices.Contains(ids[5:40], id) != (len(node.GetStatus().GetVolume()) == large) {
					t.Errorf("node %s is listed without its status", id)
				}
			}
			request.After, more = listed[len(listed)-1], page.GetMore()
		}
		if !slices.Equal(listed, ids) {
			t.Errorf("with %d at a time %d of %d nodes are listed", limit, len(listed), len(ids))
		}
	}
	if page, err := c.asOwner().ListNodes(t.Context(), &clusterv1.ListNodesRequest{Limit: 1, After: ids[len(ids)-1]}); err != nil || len(page.GetNodes()) != 0 || page.GetMore() {
		t.Errorf("behind the last: %v, %v", page, err)
	}
	for _, name := range []string{ids[30], ids[30][:20]} {
		got, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: name})
		if err != nil || got.GetNode().GetRecord().GetId() != ids[30] || len(got.GetNode().GetStatus().GetVolume()) != large {
			t.Errorf("node %s: %v", name, err)
		}
	}
}

// TestOldTombstonesAreRemoved has the next steward remove those of many that are old. A member stays, and so does a young one.
func TestOldTombstonesAreRemoved(t *testing.T) {
	c := newClusterOn(t, etcd, generous)
	// The first one's term may only begin while there are old ones already, and it would remove those.
	if err := c.curator.stop(); err != nil {
		t.Fatal(err)
	}
	var nodes []*clusterv1.NodeRecord
	var old []string
	for n := range 1160 {
		key := sha256.Sum256([]byte(fmt.Sprint("gone", n)))
		at := time.Now().Add(-time.Duration(n) * time.Second)
		if n >= 1010 {
			at = at.Add(-31 * 24 * time.Hour)
			old = append(old, identity.NodeID(key[:]))
		}
		nodes = append(nodes, &clusterv1.NodeRecord{
			Id: identity.NodeID(key[:]), PublicKey: key[:], State: stateDecommissioned, Generation: 1, Removal: &clusterv1.Removal{By: "owner", Time: timestamppb.New(at), Deleted: true},
		})
	}
	for part := range slices.Chunk(nodes, 20) {
		c.update(func(*store.State) *store.Change { return &store.Change{Nodes: part} })
	}
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	before, err := records.ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The youngest of the old goes last.
	watch := c.client().Watch(inTime(t), "nodes/"+old[0], clientv3.WithRev(before.Revision+1))
	c.curator = start(t, etcd, c.prefix, generous).ready()
	if seen := <-watch; len(seen.Events) != 1 || seen.Events[0].Type != clientv3.EventTypeDelete {
		t.Fatalf("the old tombstones are still there: %v", seen)
	}
	after, err := records.ReadRecords(t.Context())
	if err != nil || len(after.Nodes) != 1011 || after.Nodes[c.id] == nil || slices.ContainsFunc(old, func(id string) bool { return after.Nodes[id] != nil }) {
		t.Errorf("%d records are left, %v", len(after.Nodes), err)
	}
	removed := 0
	for _, entry := range c.entries(store.AuditChanges) {
		if entry.GetRpc() == "TombstonesRemoved" && entry.GetCaller() == "curator" {
			removed++
		}
	}
	if removed != 2 {
		t.Errorf("the audit log has %d of two entries", removed)
	}
}
