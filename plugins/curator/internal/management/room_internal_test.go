package management

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// full is a store with records that leave no room.
type full struct{ Store }

func (full) Update(_ context.Context, _ store.Call, decide func(*store.State) (*store.Change, error)) (*store.State, error) {
	node := func(id string, roles ...*clusterv1.RoleAssignment) *clusterv1.NodeRecord {
		return &clusterv1.NodeRecord{Id: id, State: clusterv1.NodeState_NODE_STATE_UP, Generation: 1, Roles: roles}
	}
	state := &store.State{
		Nodes: map[string]*clusterv1.NodeRecord{
			"small": node("small"), "large": node("large", &clusterv1.RoleAssignment{Role: "large", Configuration: strings.Repeat("x", rules.MaxNodes)}),
		},
		Plugins: map[string]*clusterv1.PluginRecord{"lamp": {Name: "lamp", Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{{Name: "lamp"}}}}},
	}
	change, err := decide(state)
	if err != nil {
		return nil, err
	}
	return state.With(change), nil
}

// A role that is added needs room for its node's record. One that is removed makes room, although the record may be larger until the node has removed its data.
func TestRolesAndRoom(t *testing.T) {
	service := NewService(Config{Store: full{}, Log: hclog.NewNullLogger()})
	_, err := service.AddRole(t.Context(), &clusterv1.AddRoleRequest{NodeId: "small", Role: "lamp"})
	if now := status.Convert(answer.Error(err)); now.Code() != codes.InvalidArgument || !strings.Contains(now.Message(), "the records of all nodes would have") {
		t.Errorf("a role is added: %v", err)
	}
	removed, err := service.RemoveRole(t.Context(), &clusterv1.RemoveRoleRequest{NodeId: "small", Role: "lamp", Wipe: true})
	if err != nil || len(removed.GetNode().GetWipedRoles()) != 1 {
		t.Errorf("a role is removed: %v, %v", removed.GetNode(), err)
	}
}
