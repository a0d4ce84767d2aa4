package scheduled_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/plugins/curator/internal/ca"
	"github.com/reeveproject/reeve/plugins/curator/internal/scheduled"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const interval = time.Hour

var start = time.Unix(2_000_000_000, 0)

// cluster is one of three nodes that could take snapshots, of which the first leads.
func cluster() *store.State {
	state := &store.State{
		Nodes: make(map[string]*clusterv1.NodeRecord), Statuses: make(map[string]*clusterv1.NodeStatus), Beats: make(map[string]clientv3.LeaseID),
		Snapshots: make(map[string]*clusterv1.NodeSnapshots), Store: &consensusv1.StoreState{LeaderNodeId: "one"},
		Plugins: map[string]*clusterv1.PluginRecord{"curator": {Name: "curator", Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{{Name: "curator", Provides: []string{"reeve.cluster.v1"}}}}}},
		Policy:  &clusterv1.ClusterPolicy{Snapshots: &clusterv1.SnapshotSchedule{IntervalSeconds: int64(interval / time.Second), Keep: 2}},
	}
	for _, id := range []string{"one", "three", "two"} {
		state.Nodes[id] = &clusterv1.NodeRecord{Id: id, State: clusterv1.NodeState_NODE_STATE_UP, Roles: []*clusterv1.RoleAssignment{{Role: "curator"}}}
		state.Statuses[id] = &clusterv1.NodeStatus{NodeId: id, Instances: []*clusterv1.InstanceStatus{{Role: "curator", State: hostv1.InstanceState_INSTANCE_STATE_READY}}}
		state.Beats[id] = 1
		state.Store.Members = append(state.Store.Members, &consensusv1.StoreStateMember{NodeId: id, MemberId: "m" + id, Healthy: true})
	}
	return state
}

// ask has the next one asked for, if one is due, and returns the node.
func ask(state *store.State, now time.Time) string {
	next, _ := scheduled.Next(state, now)
	if next == nil {
		return ""
	}
	state.SnapshotTask = next
	return next.GetNodeId()
}

// end ends the task that was asked for.
func end(state *store.State, failure string) {
	task := state.SnapshotTask
	kept := &clusterv1.NodeSnapshots{NodeId: task.GetNodeId(), Ended: task, Failure: failure, Snapshots: state.Snapshots[task.GetNodeId()].GetSnapshots()}
	if failure == "" {
		kept.Snapshots = append([]*clusterv1.StoredSnapshot{{Task: task}}, kept.Snapshots...)
	}
	state.Snapshots[task.GetNodeId()] = kept
}

// TestOneAfterTheOther holds that followers take turns, one at a time, and that the leader does so only where it is alone.
func TestOneAfterTheOther(t *testing.T) {
	state, now := cluster(), start
	expect := func(want string) {
		t.Helper()
		if got := ask(state, now); got != want {
			t.Errorf("%s after the beginning it is %q, want %q", now.Sub(start), got, want)
		}
	}
	expect("three")
	now = now.Add(44 * time.Minute)
	expect("")
	end(state, "")
	expect("")
	now = start.Add(interval)
	expect("two")
	end(state, "")
	now = now.Add(interval)
	expect("three")
	end(state, "the disk is full")
	expect("")
	now = now.Add(10 * time.Minute)
	expect("two")
	end(state, "")
	now = now.Add(59 * time.Minute)
	expect("")
	// Without the others the leader does it.
	now = now.Add(time.Minute)
	delete(state.Beats, "two")
	state.Store.Members[1].Learner = true
	expect("one")
	end(state, "")
	now = now.Add(interval)
	delete(state.Beats, "one")
	expect("")
	state.Policy.Snapshots = nil
	state.Beats["one"] = 1
	expect("")
}

// TestNodeThatDoesNotAnswer holds that another node is asked when one is gone, or takes too long, and not before.
func TestNodeThatDoesNotAnswer(t *testing.T) {
	state := cluster()
	if got := ask(state, start); got != "three" {
		t.Fatal(got)
	}
	delete(state.Beats, "three")
	if got := ask(state, start.Add(time.Minute)); got != "" {
		t.Errorf("after a minute it is %q", got)
	}
	if got := ask(state, start.Add(11*time.Minute)); got != "two" {
		t.Errorf("of a node that is gone: %q", got)
	}
	if got := ask(state, start.Add(55*time.Minute)); got != "" {
		t.Errorf("44 minutes after two was asked it is %q", got)
	}
	state.Beats["three"] = 1
	if got := ask(state, start.Add(57*time.Minute)); got != "three" {
		t.Errorf("46 minutes after two was asked it is %q", got)
	}
}

// TestMemberWhoseDataIsDoubted holds that a member whose data differs from that of others takes none, not even as the only one.
func TestMemberWhoseDataIsDoubted(t *testing.T) {
	state := cluster()
	state.Store.Members[1].Damage = "it holds other data"
	if got := ask(state, start); got != "two" {
		t.Errorf("with three damaged: %q", got)
	}
	state.SnapshotTask = nil
	for _, member := range state.Store.Members {
		member.Damage = "it holds other data"
	}
	if got := ask(state, start); got != "" {
		t.Errorf("with all damaged: %q", got)
	}
}

// TestClocksThatJump holds that a clock which was wrong neither keeps snapshots from being taken nor has them taken all the time.
func TestClocksThatJump(t *testing.T) {
	state := cluster()
	ask(state, start.Add(year))
	end(state, "")
	// The clock is set right: the last one seems to be of next year. One is due, and then they go on as ever.
	if ask(state, start) == "" {
		t.Fatal("none is due for a year")
	}
	end(state, "")
	if got := ask(state, start.Add(interval-time.Second)); got != "" {
		t.Errorf("another one before it is due, at %q", got)
	}
	// Stewards whose clocks differ by less than the interval neither double one nor leave it out.
	if got := ask(state, start.Add(-10*time.Minute)); got != "" {
		t.Errorf("a steward whose clock is ten minutes behind asks %q", got)
	}
	if ask(state, start.Add(interval)) == "" {
		t.Error("none is due after the interval")
	}
	// A task of next year is not waited for.
	state.SnapshotTask.Asked = timestamppb.New(start.Add(year))
	if ask(state, start.Add(2*interval)) == "" {
		t.Error("a task that was asked for by a wrong clock is waited for")
	}
}

// TestStoreThatWasBegunAgain holds that the snapshots which nodes have of the former store do not count as newer than those that are taken later.
func TestStoreThatWasBegunAgain(t *testing.T) {
	state := cluster()
	former := &clusterv1.SnapshotTask{Number: 40, NodeId: "two", Asked: timestamppb.New(start.Add(-3 * interval))}
	state.Snapshots["two"] = &clusterv1.NodeSnapshots{NodeId: "two", Snapshots: []*clusterv1.StoredSnapshot{{Task: former}}}
	state.SnapshotTask = &clusterv1.SnapshotTask{Number: 7, NodeId: "one", Asked: timestamppb.New(start.Add(-4 * interval))}
	state.Snapshots["one"] = &clusterv1.NodeSnapshots{NodeId: "one", Ended: state.SnapshotTask}
	if ask(state, start) == "" || state.SnapshotTask.GetNumber() != 41 {
		t.Fatalf("%v", state.SnapshotTask)
	}
	end(state, "")
	if got := ask(state, start.Add(interval/2)); got != "" || scheduled.Good(state).GetTask().GetNumber() != 41 {
		t.Errorf("half an interval later: %q", got)
	}
	// What has ended without a snapshot counts as well: its node would take the next one with that number for ended.
	state.Snapshots["two"].Ended, state.Snapshots["two"].Failure = &clusterv1.SnapshotTask{Number: 60, NodeId: "two"}, "its disk is full"
	if ask(state, start.Add(interval)) == "" || state.SnapshotTask.GetNumber() != 61 {
		t.Errorf("after one that failed in the former store: %v", state.SnapshotTask)
	}
}

// TestSnapshotsThatBringNothingBack holds that a snapshot counts no more when the recovery key was changed, or the CA that signed it was retired, and that another one is due at once.
func TestSnapshotsThatBringNothingBack(t *testing.T) {
	state, now := cluster(), start.Add(time.Minute)
	var authorities [][]byte
	for range 2 {
		authority, err := ca.Create("c.reeve", start)
		if err != nil {
			t.Fatal(err)
		}
		authorities = append(authorities, authority.Certificate())
	}
	state.Policy.RecoveryRecipient, state.CA = "age1former", authorities[:1]
	ask(state, start)
	end(state, "")
	one := state.Snapshots["three"].GetSnapshots()[0]
	one.Recipient, one.Signer = "age1former", scheduled.Signers(state)[0]
	good := func(want bool) {
		t.Helper()
		next, _ := scheduled.Next(state, now)
		if is := scheduled.Good(state) != nil; is != want || (next == nil) != want {
			t.Errorf("it is good: %v, want %v, and the next one is %v", is, want, next)
		}
	}
	good(true)
	state.Policy.RecoveryRecipient = "age1next"
	good(false)
	state.Policy.RecoveryRecipient = "age1former"
	for _, trusted := range [][][]byte{authorities, {authorities[1], authorities[0]}} {
		state.CA = trusted
		good(true)
	}
	state.CA = authorities[1:]
	good(false)
	// A curator of before wrote neither.
	one.Recipient, one.Signer = "", ""
	good(true)
	if err := scheduled.Problem(state, now); err != "" {
		t.Error(err)
	}
}

// TestProblem holds what people are told.
func TestProblem(t *testing.T) {
	state := cluster()
	say := func(after time.Duration, want string) {
		t.Helper()
		if got := scheduled.Problem(state, start.Add(after)); got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
	say(0, "")
	say(year, "")
	// Of one under which nothing ever ends people hear, too.
	state.Policy.SnapshotsSince = timestamppb.New(start)
	say(2*interval, "")
	say(2*interval+time.Minute, "there is no good snapshot of the consensus store")
	ask(state, start)
	end(state, "its disk is full")
	say(0, "there is no good snapshot of the consensus store: node three: its disk is full")
	ask(state, start.Add(10*time.Minute))
	end(state, "")
	say(10*time.Minute, "")
	say(10*time.Minute+2*interval, "")
	say(11*time.Minute+2*interval, "the newest good snapshot of the consensus store is of 2033-05-18T03:43:20Z, longer ago than twice the interval of 1h0m0s")
	// One of a clock that was wrong hides nothing, and one of a clock that is a little ahead is none of that.
	say(10*time.Minute-2*interval, "")
	say(9*time.Minute-2*interval, "the newest good snapshot of the consensus store is of 2033-05-18T03:43:20Z by the clock of the node that asked for it, which is in the future: compare the clocks of the nodes")
	// Of a node that was removed nobody has anything any more.
	delete(state.Nodes, "two")
	say(10*time.Minute, "there is no good snapshot of the consensus store: node three: its disk is full")
	state.Policy = nil
	say(year, "")
}

const year = 365 * 24 * time.Hour
