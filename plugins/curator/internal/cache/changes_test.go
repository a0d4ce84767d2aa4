package cache_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// apply makes of a directory what a difference says.
func apply(t *testing.T, before *hostv1.Directory, difference *clusterv1.DirectoryDifference) *hostv1.Directory {
	t.Helper()
	if difference.GetFrom() != before.GetRevision() {
		t.Fatalf("a difference from revision %d for the directory of revision %d", difference.GetFrom(), before.GetRevision())
	}
	nodes := make(map[string]*hostv1.DirectoryNode)
	for _, node := range before.GetNodes() {
		nodes[node.GetNodeId()] = node
	}
	for _, id := range difference.GetGone() {
		delete(nodes, id)
	}
	for _, node := range difference.GetNodes() {
		nodes[node.GetNodeId()] = node
	}
	after := &hostv1.Directory{Revision: difference.GetRevision()}
	for _, node := range nodes {
		after.Nodes = append(after.Nodes, node)
	}
	slices.SortFunc(after.Nodes, func(a, b *hostv1.DirectoryNode) int {
		if a.GetNodeId() < b.GetNodeId() {
			return -1
		}
		return 1
	})
	return after
}

func decoded(t *testing.T, encoded []byte, err error) *clusterv1.WatchResponse {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	response := new(clusterv1.WatchResponse)
	if err := proto.Unmarshal(encoded, response); err != nil {
		t.Fatal(err)
	}
	return response
}

// Whatever happens to the nodes, the difference since any earlier directory makes the present one of it.
func TestDifferences(t *testing.T) {
	r := run(t, nil)
	random := mathrand.New(mathrand.NewPCG(1, 2))
	var ids []string
	past := []*hostv1.Directory{r.nodes(0).Directory}
	status := func(id string, n int) {
		value, err := proto.Marshal(&clusterv1.NodeStatus{NodeId: id, Addresses: []string{fmt.Sprintf("192.0.2.%d", n)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Put(t.Context(), "status/"+id, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 60 {
		switch {
		case len(ids) < 3 || random.IntN(4) == 0:
			ids = append(ids, r.put())
		case random.IntN(3) == 0:
			at := random.IntN(len(ids))
			r.delete("nodes/" + ids[at])
			ids = slices.Delete(ids, at, at+1)
		default:
			status(ids[random.IntN(len(ids))], n)
		}
		before := past[len(past)-1]
		snapshot := r.await("the change", func(snapshot *cache.Snapshot) bool { return snapshot.Directory.GetRevision() > before.GetRevision() })
		past = append(past, snapshot.Directory)
		if whole := decoder(t)(snapshot.Sendable.Whole()); !proto.Equal(whole.GetDirectory(), snapshot.Directory) || whole.GetDifference() != nil {
			t.Errorf("the whole directory: %v, want %v", whole, snapshot.Directory)
		}
		for _, earlier := range past[:len(past)-1] {
			parts, err := snapshot.Sendable.Since(earlier.GetRevision())
			if len(parts) != 1 {
				t.Fatalf("no difference since revision %d at %d: %v", earlier.GetRevision(), snapshot.Directory.GetRevision(), err)
			}
			response := decoded(t, parts[0], err)
			if got := apply(t, earlier, response.GetDifference()); !proto.Equal(got, snapshot.Directory) || response.GetDirectory() != nil {
				t.Fatalf("since revision %d: %v, want %v", earlier.GetRevision(), got, snapshot.Directory)
			}
		}
		if encoded, err := snapshot.Sendable.Since(snapshot.Directory.GetRevision() + 1); encoded != nil || err != nil {
			t.Errorf("since a revision that nobody has: %x, %v", encoded, err)
		}
	}
}

// decoder is decoded for what returns two values.
func decoder(t *testing.T) func([]byte, error) *clusterv1.WatchResponse {
	return func(encoded []byte, err error) *clusterv1.WatchResponse { return decoded(t, encoded, err) }
}

// still is a source whose state and changes a test makes up.
type still struct {
	state   *store.State
	changes chan clientv3.WatchResponse
}

func (s *still) ReadAll(context.Context) (*store.State, error) { return s.state, nil }

func (s *still) Watch(context.Context, int64) clientv3.WatchChan { return s.changes }

// In a large cluster the first changes are told at once, and those that come close upon them together, none of them never. What is not the directory does not wait.
func TestManyNodesAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runMany(t)
		come := func() *cache.Snapshot {
			record := newRecord(t)
			snapshot := c.change("nodes/"+record.GetId(), record)
			if snapshot.Nodes[record.GetId()] == nil {
				t.Errorf("the record of change %d is not in the state", c.revision)
			}
			return snapshot
		}
		time.Sleep(time.Second)
		const atOnce = 4
		for n := range atOnce {
			if told := len(come().Directory.GetNodes()); told != 1001+n {
				t.Errorf("%d nodes after %d changes", told, n+1)
			}
		}
		for range 5 {
			time.Sleep(5 * time.Millisecond)
			if told := len(come().Directory.GetNodes()); told != 1000+atOnce {
				t.Errorf("%d nodes, others were told just now", told)
			}
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if snapshot, _ := c.Snapshots().Get(); len(snapshot.Directory.GetNodes()) != 1005+atOnce || snapshot.Directory.GetRevision() != uint64(c.revision) {
			t.Errorf("%d nodes at revision %d, when all are to be told", len(snapshot.Directory.GetNodes()), snapshot.Directory.GetRevision())
		}
		// While there are changes all the time, a cluster is told of them a few times a second.
		told := make(map[uint64]bool)
		for began := time.Now(); time.Since(began) < 2*time.Second; {
			told[come().Directory.GetRevision()] = true
			time.Sleep(5 * time.Millisecond)
		}
		if n := len(told); n < 8 || n > 20 {
			t.Errorf("in two seconds %d directories", n)
		}
	})
}

// In a large cluster values that roles change all the time are told of less often than all else, and none of them never.
func TestValuesWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runMany(t)
		time.Sleep(time.Second)
		id := c.anyNode(t)
		report := func(state hostv1.InstanceState, value string) string {
			c.change("status/"+id, &clusterv1.NodeStatus{NodeId: id, Instances: []*clusterv1.InstanceStatus{{Role: "lamp", State: state, Values: map[string]string{"bulb": value}}}})
			return c.told(id)
		}
		const starting, ready = hostv1.InstanceState_INSTANCE_STATE_STARTING, hostv1.InstanceState_INSTANCE_STATE_READY
		for _, step := range []struct {
			state       hostv1.InstanceState
			value, told string
		}{
			{ready, "1", "READY 1"},
			{ready, "2", "READY 1"},
			{starting, "3", "STARTING 3"},
			{ready, "4", "READY 4"},
			{ready, "5", "READY 4"},
			{ready, "4", "READY 4"},
			{ready, "6", "READY 4"},
		} {
			if told := report(step.state, step.value); told != step.told {
				t.Errorf("%v: told of %s", step, told)
			}
		}
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if told := c.told(id); told != "READY 6" {
			t.Errorf("when all is to be told: %s", told)
		}
		told := make(map[string]bool)
		for n := 0; n < 100; n++ {
			told[report(ready, fmt.Sprint("more", n))] = true
			time.Sleep(20 * time.Millisecond)
		}
		if n := len(told); n < 4 || n > 7 {
			t.Errorf("in two seconds %d values", n)
		}
	})
}

// In a large cluster the next values wait until those before are paid for, by their bytes: 8 GB here, at 64 MiB a second. All else is told meanwhile, and is paid for too.
func TestValuesAreToldByTheirBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runMany(t)
		time.Sleep(time.Second)
		id := c.anyNode(t)
		status := func(node, value string, state int) proto.Message {
			return &clusterv1.NodeStatus{NodeId: node, Instances: []*clusterv1.InstanceStatus{{
				Role: "lamp", State: hostv1.InstanceState(state), Values: map[string]string{"bulb": value, "more": strings.Repeat("x", 8000)},
			}}}
		}
		report := func(value string, state int) {
			statuses := make(map[string]proto.Message)
			snapshot, _ := c.Snapshots().Get()
			for node := range snapshot.Nodes {
				statuses["status/"+node] = status(node, value, state)
			}
			c.changes(statuses)
		}
		wait := func(long time.Duration, value string) {
			t.Helper()
			time.Sleep(long)
			synctest.Wait()
			if told := c.told(id); !strings.HasSuffix(told, " "+value) {
				t.Errorf("told of %s, want %s", told, value)
			}
		}
		const starting, ready = int(hostv1.InstanceState_INSTANCE_STATE_STARTING), int(hostv1.InstanceState_INSTANCE_STATE_READY)
		report("1", ready)
		wait(0, "1")
		report("2", ready)
		wait(100*time.Second, "1")
		// One node that starts is told of at once, and so are its values.
		c.change("status/"+id, status(id, "3", starting))
		wait(0, "3")
		c.change("status/"+id, status(id, "4", starting))
		wait(15*time.Second, "3")
		wait(20*time.Second, "4")
		// What is told of nodes besides is a quarter of that, by what it is, and five seconds at most.
		time.Sleep(200 * time.Second)
		report("5", starting)
		wait(0, "5")
		report("6", ready)
		wait(0, "6")
		report("7", starting)
		wait(4*time.Second, "6")
		wait(2*time.Second, "7")
	})
}

// many is a cache of a thousand nodes that a test changes.
type many struct {
	*cache.Cache
	t        *testing.T
	source   *still
	revision int64
}

// runMany runs a cache of a thousand nodes with the role lamp until the test ends.
func runMany(t *testing.T) *many {
	source := &still{
		state: &store.State{Revision: 1, Nodes: make(map[string]*clusterv1.NodeRecord), Statuses: make(map[string]*clusterv1.NodeStatus)}, changes: make(chan clientv3.WatchResponse),
	}
	for range 1000 {
		record := newRecord(t)
		record.Roles = []*clusterv1.RoleAssignment{{Role: "lamp"}}
		source.state.Nodes[record.GetId()] = record
	}
	c := &many{Cache: cache.New(source, hclog.NewNullLogger()), t: t, source: source, revision: 1}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		close(source.changes)
		<-ended
	})
	return c
}

// change has the store tell of a record, and returns the snapshot that follows.
func (c *many) change(key string, record proto.Message) *cache.Snapshot {
	return c.changes(map[string]proto.Message{key: record})
}

// changes has it tell of several at once.
func (c *many) changes(records map[string]proto.Message) *cache.Snapshot {
	c.revision++
	var response clientv3.WatchResponse
	for key, record := range records {
		value, err := proto.Marshal(record)
		if err != nil {
			c.t.Fatal(err)
		}
		response.Events = append(response.Events, &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), Value: value, ModRevision: c.revision}})
	}
	c.source.changes <- response
	synctest.Wait()
	snapshot, _ := c.Snapshots().Get()
	return snapshot
}

func (c *many) anyNode(t *testing.T) string {
	snapshot, ok := c.Snapshots().Get()
	if !ok || len(snapshot.Directory.GetNodes()) == 0 {
		t.Fatal("there is no node")
	}
	return snapshot.Directory.GetNodes()[0].GetNodeId()
}

// told is what the directory says of the node's only role.
func (c *many) told(id string) string {
	snapshot, _ := c.Snapshots().Get()
	for _, node := range snapshot.Directory.GetNodes() {
		for _, role := range node.GetRoles() {
			if node.GetNodeId() == id {
				return strings.TrimPrefix(role.GetState().String(), "INSTANCE_STATE_") + " " + role.GetValues()["bulb"]
			}
		}
	}
	return ""
}

func newRecord(t *testing.T) *clusterv1.NodeRecord {
	t.Helper()
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &clusterv1.NodeRecord{Id: identity.NodeID(key), PublicKey: key, State: clusterv1.NodeState_NODE_STATE_UP}
}

// What is the same for all nodes stays the same one as long as it is, whatever else changes.
func TestCommonStays(t *testing.T) {
	r := run(t, nil)
	r.put()
	before := r.nodes(1)
	r.put()
	after := r.nodes(2)
	if after.Common != before.Common || after.Sendable == before.Sendable {
		t.Error("another node has changed what is common to all, or not the directory")
	}
	policy, err := proto.Marshal(&clusterv1.ClusterPolicy{Generation: 9})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Put(t.Context(), "policy", string(policy)); err != nil {
		t.Fatal(err)
	}
	changed := r.await("the policy", func(snapshot *cache.Snapshot) bool { return snapshot.Common.Policy.GetGeneration() == 9 })
	if changed.Common == before.Common || changed.Sendable != after.Sendable {
		t.Error("the policy has changed the directory, or nothing")
	}
}
