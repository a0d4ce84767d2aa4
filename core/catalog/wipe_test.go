package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
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
		for _, path := range (Wiper{Layout: layout}).paths(role) {
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
	w := Wiper{
		Log: hclog.NewNullLogger(), Layout: layout, Events: events,
		Bar:   func(role, _ string) bool { barred[role] = role != "stopping"; return barred[role] },
		Unbar: func(role string) { barred[role] = false },
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

// A core that was killed between the two renames of a rotation leaves the new file of the log, and perhaps nothing else.
func TestWipeAfterABrokenOffRotation(t *testing.T) {
	layout := storage.Layout{Data: t.TempDir()}
	begun := layout.Log("gone") + ".new"
	if err := errors.Join(os.MkdirAll(filepath.Dir(begun), 0o700), os.WriteFile(begun, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	w := Wiper{
		Log: hclog.NewNullLogger(), Layout: layout, Events: &recorder{},
		Bar: func(string, string) bool { return true }, Unbar: func(string) {},
	}
	if w.wipeAll(t.Context(), &cluster.View{Node: &clusterv1.NodeRecord{WipedRoles: []string{"gone"}}}) {
		t.Error("something is left")
	}
	if _, err := os.Lstat(begun); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log that a rotation began is left: %v", err)
	}
}
