package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/rmtree"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/storage"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Wiper removes what a role left on the node, once the cluster has taken the role from it for good.
type Wiper struct {
	Log    hclog.Logger
	Layout storage.Layout
	View   *event.Value[*cluster.View]
	// Instances tells when the last instance of a role may have ended.
	Instances *event.Value[roles.Instances]
	// Bar keeps a role from being started, and reports whether no instance of it runs. Unbar ends that.
	Bar    func(role, why string) bool
	Unbar  func(role string)
	Events roles.Recorder
}

// wipeAgain is the time until the wiper tries again to remove something.
const wipeAgain = time.Minute

// Run removes what is left until the context ends.
func (w Wiper) Run(ctx context.Context) {
	views, instances := w.View.Watch(), w.Instances.Watch()
	for {
		view, _ := views.Latest()
		_, _ = instances.Latest()
		var later <-chan time.Time
		if w.wipeAll(ctx, view) {
			later = time.After(wipeAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-views.Changed():
		case <-instances.Changed():
		case <-later:
		}
	}
}

// wipeAll removes what is left of every role to be wiped, and reports whether it must try again.
func (w Wiper) wipeAll(ctx context.Context, view *cluster.View) (again bool) {
	if view == nil {
		return false
	}
	for _, role := range view.Node.GetWipedRoles() {
		assigned := slices.ContainsFunc(view.Node.GetRoles(), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == role })
		// An invalid name might lead to any file.
		if assigned || !names.ValidName(role) || !w.left(role) {
			continue
		}
		if !w.Bar(role, "the node removes first what the role kept on it") {
			continue // an instance still runs; Instances tells its end
		}
		err := w.wipe(ctx, role)
		w.Unbar(role)
		if err != nil {
			if ctx.Err() == nil {
				w.Log.Error("cannot remove what a role left; trying again", "role", role, "error", err, "again", wipeAgain)
			}
			again = true
			continue
		}
		w.Log.Info("removed what a role left", "role", role)
		w.Events.Record(&nodev1.Event{
			Severity: nodev1.Severity_SEVERITY_INFO, Type: "RoleDataWiped", Role: role,
			Message: "what role " + role + " had kept on this node was removed",
		})
	}
	return again
}

// paths returns where a role keeps what is to be removed. A core that was killed while it rotated the role's log leaves the file with `.new`.
func (w Wiper) paths(role string) []string {
	log := w.Layout.Log(role)
	return []string{filepath.Join(w.Layout.Roles(), role), log, log + ".1", log + ".new", filepath.Join(w.Layout.Failures(), role+".json")}
}

// left reports whether anything of a role is left.
func (w Wiper) left(role string) bool {
	return slices.ContainsFunc(w.paths(role), func(path string) bool {
		_, err := os.Lstat(path)
		return !errors.Is(err, os.ErrNotExist)
	})
}

// wipe takes a minute for each path at most. What takes longer is removed by the next try.
func (w Wiper) wipe(ctx context.Context, role string) error {
	var problems []error
	for _, path := range w.paths(role) {
		problems = append(problems, rmtree.Remove(ctx, path))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("catalog: role %s: %w", role, err)
	}
	return nil
}
