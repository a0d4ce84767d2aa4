package dev_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node makes a status: roles are given as name and state.
func node(membership hostv1.MembershipState, reason string, roles ...any) *nodev1.Status {
	status := &nodev1.Status{Membership: &hostv1.Membership{State: membership, Reason: reason}, Node: &clusterv1.NodeStatus{}}
	for i := 0; i < len(roles); i += 2 {
		status.Node.Instances = append(status.Node.Instances, &clusterv1.InstanceStatus{
			Role: roles[i].(string), State: roles[i+1].(hostv1.InstanceState), Reason: "why",
		})
	}
	return status
}

func assigned(roles ...string) *clusterv1.NodeRecord {
	record := &clusterv1.NodeRecord{}
	for _, role := range roles {
		record.Roles = append(record.Roles, &clusterv1.RoleAssignment{Role: role})
	}
	return record
}

const (
	home      = hostv1.MembershipState_MEMBERSHIP_STATE_HOME
	split     = hostv1.MembershipState_MEMBERSHIP_STATE_SPLIT
	disowning = hostv1.MembershipState_MEMBERSHIP_STATE_DISOWNING
	ready     = hostv1.InstanceState_INSTANCE_STATE_READY
	blocked   = hostv1.InstanceState_INSTANCE_STATE_BLOCKED
	degraded  = hostv1.InstanceState_INSTANCE_STATE_DEGRADED
	failed    = hostv1.InstanceState_INSTANCE_STATE_FAILED
)

// TestWhy names the role that runs badly before what follows from that.
func TestWhy(t *testing.T) {
	for want, health := range map[string]dev.Health{
		"it has not said anything": {},
		"the node is Split: x":     {Missing: "the node is Split: x"},
		"role store is Degraded: its data is damaged; the node is Split: x": {Missing: "the node is Split: x", Ailing: "role store is Degraded: its data is damaged"},
		"role hosts is Degraded: why":                                       {Missing: "role hosts is Degraded: why", Ailing: "role hosts is Degraded: why"},
	} {
		if got := health.Why(); got != want {
			t.Errorf("%+v: %q, want %q", health, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	defaults := []string{"store", "hosts"}
	tests := []struct {
		name   string
		status *nodev1.Status
		record *clusterv1.NodeRecord
		want   dev.Health
	}{
		{"nothing said", nil, nil, dev.Health{Missing: "the node is "}},
		{"up", node(home, "", "store", ready, "hosts", ready), assigned("store", "hosts"), dev.Health{Up: true, Manageable: true}},
		{"no record", node(home, "", "store", ready, "hosts", ready), nil, dev.Health{Missing: "the cluster has not said which roles the node has"}},
		{"a role not begun", node(home, "", "store", ready), assigned("store", "hosts"), dev.Health{Missing: "role hosts has not begun", Manageable: true}},
		{"a default role was removed", node(home, "", "store", ready), assigned("store"), dev.Health{Up: true, Manageable: true}},
		{"another role does not matter", node(home, "", "store", ready, "x", failed), assigned("store", "x"), dev.Health{Up: true, Manageable: true}},
		{"blocked", node(home, "", "store", ready, "hosts", blocked), assigned("store", "hosts"), dev.Health{Missing: "role hosts is Blocked: why", Manageable: true}},
		{"blocked by the machine", running(node(home, "", "store", ready, "hosts", blocked)), assigned("store", "hosts"),
			dev.Health{Missing: "role hosts is Blocked: why", Ailing: "role hosts is Blocked: why", Manageable: true}},
		{"degraded", node(home, "", "store", ready, "hosts", degraded), assigned("store", "hosts"),
			dev.Health{Missing: "role hosts is Degraded: why", Ailing: "role hosts is Degraded: why", Manageable: true}},
		{"split", node(split, "no contact yet", "store", ready, "hosts", ready), nil, dev.Health{Missing: "the node is Split: no contact yet"}},
		{"failed", node(split, "x", "store", failed), nil, dev.Health{Missing: "the node is Split: x", Broken: "role store is Failed: why"}},
		{"locked", locked("PCR 7 has changed"), nil, dev.Health{Missing: "the volume is Locked: PCR 7 has changed"}},
		{"removed", node(disowning, "", "store", ready, "hosts", ready), nil, dev.Health{Broken: "the node was removed from its cluster"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := dev.Judge(test.status, defaults, test.record); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// running gives every role of a node a process.
func running(status *nodev1.Status) *nodev1.Status {
	for _, instance := range status.GetNode().GetInstances() {
		instance.Pid = 7
	}
	return status
}

// A node may take as long to stop as its roles say that they need, one after another.
func TestStopTime(t *testing.T) {
	status := running(node(home, "", "store", ready, "hosts", ready, "x", blocked))
	if usual := dev.StopTime(status); usual != dev.StopTime(nil) {
		t.Errorf("%s, and %s where nothing runs", usual, dev.StopTime(nil))
	}
	for _, instance := range status.GetNode().GetInstances()[1:] {
		instance.StopGrace = durationpb.New(time.Minute)
	}
	if got, want := dev.StopTime(status), dev.StopTime(nil)+100*time.Second; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// locked is a node whose volume is.
func locked(problem string) *nodev1.Status {
	status := node(hostv1.MembershipState_MEMBERSHIP_STATE_UNKNOWN, "")
	status.Storage = &clusterv1.StorageStatus{State: clusterv1.StorageState_STORAGE_STATE_LOCKED, Problem: problem}
	return status
}

// TestVolumes holds that an ordinary user is told why there is no encrypted volume, and what to do.
func TestVolumes(t *testing.T) {
	for _, test := range []struct {
		kind string
		uid  int
		want fault.Code
	}{{"", 1000, fault.OK}, {dev.Plain, 1000, fault.OK}, {dev.Fscrypt, 0, fault.OK}, {dev.Fscrypt, 1000, fault.Refused}, {"luks", 0, fault.Usage}} {
		err := dev.CheckVolume(test.kind, test.uid)
		if fault.CodeOf(err) != test.want {
			t.Errorf("%q for user %d: %v", test.kind, test.uid, err)
		}
		if problem := (*fault.Error)(nil); errors.As(err, &problem) && problem.Next == "" {
			t.Errorf("%v says not what to do", err)
		}
	}
}

func TestChanges(t *testing.T) {
	before := node(split, "no contact\x1b yet", "a", blocked, "b", ready)
	tests := []struct {
		name     string
		old, new *nodev1.Status
		want     []string
	}{
		{"the first", nil, before, []string{"node: Split: no contact  yet", "role a: Blocked: why", "role b: Ready: why"}},
		{"locked", nil, locked("PCR 7\x1b"), []string{"node: Unknown", "volume: Locked: PCR 7 "}},
		{"the same", before, before, nil},
		{"some", before, node(home, "", "a", ready, "c", failed), []string{"node: Home", "role a: Ready: why", "role c: Failed: why", "role b: gone"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := dev.Changes(test.old, test.new); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
