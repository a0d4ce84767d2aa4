package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

func directoryOf(nodes map[string][]string) *hostv1.Directory {
	directory := &hostv1.Directory{}
	for id, roles := range nodes {
		node := &hostv1.DirectoryNode{NodeId: id}
		if roles != nil {
			node.Assigned = &hostv1.AssignedRoles{Roles: roles}
		}
		directory.Nodes = append(directory.Nodes, node)
	}
	return directory
}

func TestDeparted(t *testing.T) {
	directory := directoryOf(map[string][]string{"worker": {pki.WorkerRole}, "other": {pki.ControllerRole}, "untold": nil})
	made := func(name, label string) node {
		return node{Name: name, UID: "uid of " + name, Labels: map[string]string{NodeLabel: label}}
	}
	nodes := []node{
		made("worker", "worker"), made("other", "other"), made("untold", "untold"), made("removed", "removed"),
		made("of somebody", "removed"), {Name: "removed too", UID: "u", Labels: map[string]string{"a": "b"}},
	}
	names := func(found []node) (names []string) {
		for _, each := range found {
			names = append(names, each.Name)
		}
		return names
	}
	since, now := make(map[string]time.Time), time.Now()
	if found := departed(directory, nodes, since, now); len(found) > 0 {
		t.Errorf("%v have departed at once", names(found))
	}
	want := []string{"other", "removed"}
	if found := names(departed(directory, nodes, since, now.Add(sweepAfter))); !slices.Equal(found, want) {
		t.Errorf("%v have departed, and should have %v", found, want)
	}
	// A node that has its worker again for a moment begins anew.
	again := directoryOf(map[string][]string{"worker": {pki.WorkerRole}, "other": {pki.WorkerRole}, "untold": nil})
	if found := names(departed(again, nodes, since, now.Add(sweepAfter))); !slices.Equal(found, want[1:]) {
		t.Errorf("%v have departed, and should have %v", found, want[1:])
	}
	if found := names(departed(directory, nodes, since, now.Add(sweepAfter))); !slices.Equal(found, want[1:]) {
		t.Errorf("%v have departed, and should have %v", found, want[1:])
	}
	if departed(directory, nil, since, now); len(since) > 0 {
		t.Errorf("nodes are remembered that are not there: %v", since)
	}
}

func TestSilent(t *testing.T) {
	type condition = struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	}
	for _, test := range []struct {
		conditions []condition
		silent     bool
	}{
		{nil, false},
		{[]condition{{"Ready", "True"}}, false},
		{[]condition{{"Ready", "False"}}, false}, // it is alive and says that it is not ready
		{[]condition{{"MemoryPressure", "Unknown"}, {"Ready", "True"}}, false},
		{[]condition{{"MemoryPressure", "False"}, {"Ready", "Unknown"}}, true},
	} {
		if got := (nodeStatus{Conditions: test.conditions}).silent(); got != test.silent {
			t.Errorf("%v: silent is %t", test.conditions, got)
		}
	}
}
