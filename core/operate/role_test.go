package operate

import (
	"context"
	"errors"
	"testing"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

func TestRole(t *testing.T) {
	var desired event.Value[roles.Desired]
	var instances event.Value[roles.Instances]
	var store event.Value[*consensusv1.StoreStatus]
	room := &Room{Desired: &desired, Instances: &instances, Store: &store}
	var unknown *roles.NotDesiredError
	if _, err := room.Role(context.Background(), "x"); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	manifest := &rolev1.RoleManifest{Name: "x", ConsensusUser: "u", StartsFromCache: true, InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP}
	record := &clusterv1.PluginRecord{Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{manifest}}, Grants: []*clusterv1.RoleGrants{{Role: "x", ConsensusUser: "u"}}}
	desired.Set(roles.Desired{Roles: []roles.DesiredRole{{Assignment: &clusterv1.RoleAssignment{Role: "x"}, Plugin: record}}})
	store.Set(&consensusv1.StoreStatus{Usage: []*consensusv1.UserUsage{{ConsensusUser: "t"}, {ConsensusUser: "u", Bytes: 7}}})
	answer, err := room.Role(context.Background(), "x")
	if err != nil || answer.GetUsage().GetBytes() != 7 || answer.GetSandbox() != nil || !answer.GetStartsFromCache() || answer.GetInSplit() != manifest.GetInSplit() {
		t.Errorf("%v, %v", answer, err)
	}
	instances.Set(roles.Instances{{
		Status: &clusterv1.InstanceStatus{Role: "x", Pid: 5}, Remit: &plugin.Remit{Manifest: &rolev1.RoleManifest{Name: "x"}, Grants: &clusterv1.RoleGrants{Role: "x"}},
		Sandbox: &nodev1.Sandbox{Uid: 9},
	}})
	answer, err = room.Role(context.Background(), "x")
	if err != nil || answer.GetSandbox().GetUid() != 9 || answer.GetUsage() != nil || answer.GetStatus().GetPid() != 5 || answer.GetStartsFromCache() {
		t.Errorf("%v, %v", answer, err)
	}
}
