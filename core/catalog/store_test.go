package catalog

import (
	"context"
	"testing"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Whether a node has left the store is said only where that is certain.
func TestHasLeftTheStore(t *testing.T) {
	offer := func(provides ...string) []*clusterv1.PluginRecord {
		return []*clusterv1.PluginRecord{{Name: "p", Manifest: &rolev1.Manifest{Name: "p", Roles: []*rolev1.RoleManifest{{Name: "r", Provides: provides}}}}}
	}
	up := &clusterv1.NodeRecord{State: clusterv1.NodeState_NODE_STATE_UP, Roles: []*clusterv1.RoleAssignment{{Role: "r"}}}
	leaving := &clusterv1.NodeRecord{State: clusterv1.NodeState_NODE_STATE_UP, Roles: []*clusterv1.RoleAssignment{{Role: "r", Leaving: true}}}
	home := membership.Contact{OK: true}
	running := roles.Instances{{Process: &plugin.Process{PID: 1}, Status: &clusterv1.InstanceStatus{Role: "r"}}}
	for name, test := range map[string]struct {
		view      *cluster.View
		contact   membership.Contact
		instances roles.Instances
		want      bool
	}{
		"nothing was said":       {nil, home, nil, false},
		"no contact":             {&cluster.View{Node: up, Plugins: offer()}, membership.Contact{}, nil, false},
		"no role of it":          {&cluster.View{Node: up, Plugins: offer()}, home, nil, true},
		"a role of it":           {&cluster.View{Node: up, Plugins: offer(roles.CapabilityConsensus)}, home, nil, false},
		"leaving":                {&cluster.View{Node: leaving, Plugins: offer(roles.CapabilityConsensus)}, home, nil, false},
		"a role of no plugin":    {&cluster.View{Node: up}, home, nil, false},
		"one still runs":         {&cluster.View{Node: up, Plugins: offer()}, home, running, false},
		"a node of no state yet": {&cluster.View{Node: &clusterv1.NodeRecord{}}, home, nil, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var left event.Value[bool]
		go func() {
			defer close(done)
			FollowStore(ctx, event.New(test.view), event.New(test.contact), event.New(test.instances), &left)
		}()
		if got, err := left.Wait(ctx, func(bool) bool { return true }); err != nil || got != test.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
		cancel()
		<-done
	}
}
