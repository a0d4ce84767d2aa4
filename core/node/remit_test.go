package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

type recorder struct {
	mu     sync.Mutex
	events []*nodev1.Event
}

func (r *recorder) Record(e *nodev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func TestWipe(t *testing.T) {
	layout := storage.Layout{Data: t.TempDir()}
	write := func(role string) (paths []string) {
		for _, path := range (wiper{layout: layout}).paths(role) {
			if filepath.Ext(path) == "" {
				path = filepath.Join(path, "deep", "file")
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		return paths
	}
	events := &recorder{}
	barred := make(map[string]bool)
	w := wiper{
		log: hclog.NewNullLogger(), layout: layout, events: events,
		bar:   func(role, _ string) bool { barred[role] = role != "stopping"; return barred[role] },
		unbar: func(role string) { barred[role] = false },
	}
	all := map[string][]string{}
	for _, role := range []string{"gone", "stopping", "again", "other"} {
		all[role] = write(role)
	}
	outside := filepath.Join(layout.Data, "file")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	view := &cluster.View{Node: &clusterv1.NodeRecord{
		WipedRoles: []string{"../../file", "..", "again", "gone", "stopping", "unknown"}, Roles: []*clusterv1.RoleAssignment{{Role: "again"}},
	}}
	for range 2 {
		if w.wipeAll(t.Context(), view) {
			t.Error("something is left")
		}
	}
	for role, paths := range all {
		for _, path := range paths {
			if _, err := os.Stat(path); (err == nil) != (role != "gone") {
				t.Errorf("%s: %v", path, err)
			}
		}
		if barred[role] {
			t.Errorf("%s is still barred", role)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if len(events.events) != 1 || events.events[0].GetType() != "RoleDataWiped" || events.events[0].GetRole() != "gone" {
		t.Errorf("events %v", events.events)
	}
}

func TestRole(t *testing.T) {
	var desired event.Value[roles.Desired]
	var instances event.Value[roles.Instances]
	var store event.Value[*consensusv1.StoreStatus]
	teller := roleTeller{desired: &desired, instances: &instances, store: &store}
	var unknown *roles.NotDesiredError
	if _, err := teller.role(context.Background(), "x"); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	manifest := &rolev1.RoleManifest{Name: "x", ConsensusUser: "u", StartsFromCache: true, InSplit: rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP}
	record := &clusterv1.PluginRecord{Manifest: &rolev1.Manifest{Roles: []*rolev1.RoleManifest{manifest}}, Grants: []*clusterv1.RoleGrants{{Role: "x", ConsensusUser: "u"}}}
	desired.Set(roles.Desired{Roles: []roles.DesiredRole{{Assignment: &clusterv1.RoleAssignment{Role: "x"}, Plugin: record}}})
	store.Set(&consensusv1.StoreStatus{Usage: []*consensusv1.UserUsage{{ConsensusUser: "t"}, {ConsensusUser: "u", Bytes: 7}}})
	answer, err := teller.role(context.Background(), "x")
	if err != nil || answer.GetUsage().GetBytes() != 7 || answer.GetSandbox() != nil || !answer.GetStartsFromCache() || answer.GetInSplit() != manifest.GetInSplit() {
		t.Errorf("%v, %v", answer, err)
	}
	instances.Set(roles.Instances{{
		Status: &clusterv1.InstanceStatus{Role: "x", Pid: 5}, Remit: &plugin.Remit{Manifest: &rolev1.RoleManifest{Name: "x"}, Grants: &clusterv1.RoleGrants{Role: "x"}},
		Sandbox: &nodev1.Sandbox{Uid: 9},
	}})
	answer, err = teller.role(context.Background(), "x")
	if err != nil || answer.GetSandbox().GetUid() != 9 || answer.GetUsage() != nil || answer.GetStatus().GetPid() != 5 || answer.GetStartsFromCache() {
		t.Errorf("%v, %v", answer, err)
	}
}
