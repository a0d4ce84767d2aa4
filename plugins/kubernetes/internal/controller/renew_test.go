package controller

import (
	"testing"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/pki"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// TestTurn: a controller waits for those before it that are well and have not started their programs anew yet.
func TestTurn(t *testing.T) {
	one := func(id string, healthy bool, state hostv1.InstanceState, role, value string) *hostv1.DirectoryNode {
		return &hostv1.DirectoryNode{NodeId: id, Healthy: healthy, Roles: []*hostv1.DirectoryRole{{Role: role, State: state, Values: map[string]string{pki.TrustValue: value}}}}
	}
	const ready, degraded = hostv1.InstanceState_INSTANCE_STATE_READY, hostv1.InstanceState_INSTANCE_STATE_DEGRADED
	for name, test := range map[string]struct {
		other *hostv1.DirectoryNode
		waits bool
	}{
		"before, with the former":  {one("a", true, ready, pki.ControllerRole, "6"), true},
		"before, says nothing":     {one("a", true, ready, pki.ControllerRole, ""), true},
		"before, with the present": {one("a", true, ready, pki.ControllerRole, "7"), false},
		"before, not well":         {one("a", true, degraded, pki.ControllerRole, "6"), false},
		"before, not alive":        {one("a", false, ready, pki.ControllerRole, "6"), false},
		"before, another role":     {one("a", true, ready, pki.WorkerRole, "6"), false},
		"after":                    {one("c", true, ready, pki.ControllerRole, "6"), false},
		"itself":                   {one("b", true, ready, pki.ControllerRole, "6"), false},
	} {
		if waits := othersBefore(&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{test.other}}, "b", 7); waits != test.waits {
			t.Errorf("%s: it waits: %t", name, waits)
		}
	}
}
