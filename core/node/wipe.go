package node

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

// wiper removes what roles have left on the node that were taken from it for good.
type wiper struct {
	log    hclog.Logger
	layout storage.Layout
	view   *event.Value[*cluster.View]
	// instances tells when there may be another role whose last instance has ended.
	instances *event.Value[roles.Instances]
	// bar keeps a role from being started while what it left is removed, and reports whether nothing of it runs; unbar ends that.
	bar   func(role, why string) bool
	unbar func(role string)

	events roles.Recorder
}

// wipeAgain is how long the wiper waits after it could not remove something.
const wipeAgain = time.Minute

func (w wiper) run(ctx context.Context) error {
	views, instances := w.view.Watch(), w.instances.Watch()
	for {
		_, _ = instances.Latest()
		again := w.wipeAll(ctx, latest(views))
		var later <-chan time.Time
		if again {
			later = time.After(wipeAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-views.Changed():
		case <-instances.Changed():
		case <-later:
		}
	}
}

// wipeAll removes what is to be removed, and reports whether something is left of it.
func (w wiper) wipeAll(ctx context.Context, view *cluster.View) (again bool) {
	if view == nil {
		return false
	}
	for _, role := range view.Node.GetWipedRoles() {
		assigned := slices.ContainsFunc(view.Node.GetRoles(), func(a *clusterv1.RoleAssignment) bool { return a.GetRole() == role })
		// A name that is none might lead anywhere.
		if assigned || !names.ValidName(role) || !w.left(role) {
			continue
		}
		if !w.bar(role, "what it had kept on this node is being removed first") {
			continue // it still runs; its end is told
		}
		err := w.wipe(ctx, role)
		w.unbar(role)
		if err != nil {
			if ctx.Err() == nil {
				w.log.Error("what a role has left cannot be removed", "role", role, "error", err, "again", wipeAgain)
			}
			again = true
			continue
		}
		w.log.Info("removed what a role has left", "role", role)
		w.events.Record(&nodev1.Event{
			Severity: nodev1.Severity_SEVERITY_INFO, Type: "RoleDataWiped", Role: role,
			Message: "what role " + role + " had kept on this node was removed",
		})
	}
	return again
}

// paths is where a role keeps what is to be removed.
func (w wiper) paths(role string) []string {
	log := w.layout.Log(role)
	return []string{filepath.Join(w.layout.Roles(), role), log, log + ".1", filepath.Join(w.layout.Failures(), role+".json")}
}

// left reports whether there is something of a role.
func (w wiper) left(role string) bool {
	return slices.ContainsFunc(w.paths(role), func(path string) bool {
		_, err := os.Lstat(path)
		return !errors.Is(err, os.ErrNotExist)
	})
}

// wipe takes a minute for each path at most: what a role has made in more than that is removed later.
func (w wiper) wipe(ctx context.Context, role string) error {
	var problems []error
	for _, path := range w.paths(role) {
		problems = append(problems, rmtree.Remove(ctx, path))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("node: role %s: %w", role, err)
	}
	return nil
}
