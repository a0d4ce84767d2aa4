package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Chooser is the one writer of what should run on the node. It chooses between what the node knew when it started and what the cluster says,
// and keeps the latter.
type Chooser struct {
	Log hclog.Logger
	// Path is the file of the assignment.
	Path  string
	Known *Assignment
	// Committed is what the cluster assigned when it took the node in.
	Committed *event.Value[*Assignment]

	Phase      *event.Value[seal.Phase]
	Membership *event.Value[membership.Status]
	Problem    *event.Value[*membership.Problem]
	View       *event.Value[*cluster.View]
	// Full is why roles must not run that fill the disk, by role; Imported is set anew with every executable that was imported, which may be what a role
	// waits for.
	Full     *event.Value[map[string]string]
	Imported *event.Value[string]
	// Missing says what of a role's sandbox this node cannot enforce; nil: nothing.
	Missing func(plugin.Spec) []*clusterv1.Missing

	Desired *event.Value[roles.Desired]
}

// Run chooses until the context ends.
func (c Chooser) Run(ctx context.Context) {
	phases, states, problems, views := c.Phase.Watch(), c.Membership.Watch(), c.Problem.Watch(), c.View.Watch()
	fulls, imports, commits := c.Full.Watch(), c.Imported.Watch(), c.Committed.Watch()
	kept := c.Known
	// adopted is what of committed was taken over.
	var adopted *Assignment
	for {
		var again <-chan time.Time
		phase, _ := phases.Latest()
		status, _ := states.Latest()
		problem, _ := problems.Latest()
		view, _ := views.Latest()
		full, _ := fulls.Latest()
		_, _ = imports.Latest()
		contacted := view != nil
		if committed, _ := commits.Latest(); committed != adopted {
			adopted = committed
			// It is on the disk by now, over what was there, so where the cluster has said more already, that is written once more.
			if kept = nil; !contacted {
				c.Known, kept = committed, committed
			}
		}
		if contacted {
			assigned := &Assignment{
				Roles: view.Node.GetRoles(), Plugins: view.Plugins, Policy: view.Policy, Drained: view.Node.GetDrained(),
				// A view does not say it.
				ClusterUser: cmp.Or(c.Known.ClusterAPIUser(), adopted.ClusterAPIUser()),
			}
			// Before the node is a member, what the cluster said when it took it in is all that is kept.
			enrols := !phase.Before(seal.Registering) && phase.Before(seal.Member)
			if !enrols && (kept == nil || !assigned.equal(kept)) {
				if err := WriteAssignment(c.Path, assigned); err != nil {
					// The node goes on: what it cannot keep it is told again at the next start, by roles that it has kept.
					c.Log.Error("the assigned roles cannot be kept; after a restart the node would begin with older ones", "error", err, "again", rewrite)
					again = time.After(rewrite)
				} else {
					kept = assigned
				}
			}
			c.Known = assigned
		}
		c.Desired.Set(c.complete(phase, status, contacted, problem, full))
		select {
		case <-ctx.Done():
			return
		case <-phases.Changed():
		case <-states.Changed():
		case <-problems.Changed():
		case <-views.Changed():
		case <-fulls.Changed():
		case <-imports.Changed():
		case <-commits.Changed():
		case <-again:
		}
	}
}

// rewrite is how long the node waits before it tries again to keep its assignment.
const rewrite = 5 * time.Second

func (a *Assignment) equal(b *Assignment) bool {
	same := func(x, y proto.Message) bool { return proto.Equal(x, y) }
	return slices.EqualFunc(a.Roles, b.Roles, func(x, y *clusterv1.RoleAssignment) bool { return same(x, y) }) &&
		slices.EqualFunc(a.Plugins, b.Plugins, func(x, y *clusterv1.PluginRecord) bool { return same(x, y) }) &&
		same(a.Policy, b.Policy) && a.Drained == b.Drained && a.ClusterUser == b.ClusterUser
}

// choose says what should run: all assigned roles, some of them held back as long as the node's membership asks for it.
func choose(known *Assignment, phase seal.Phase, status membership.Status, contacted bool, problem *membership.Problem) roles.Desired {
	var desired roles.Desired
	for _, role := range known.Roles {
		record, manifest := known.Find(role.GetRole())
		wanted := roles.DesiredRole{
			Assignment: role, Plugin: record,
			Hold: hold(known, manifest, phase, status, contacted), Gate: gate(manifest, phase, status, contacted),
		}
		if problem != nil && problem.Role == role.GetRole() {
			wanted.Failed = problem.Message
		}
		desired.Roles = append(desired.Roles, wanted)
	}
	return desired
}

// hold says why a role must not run; empty: it may.
func hold(known *Assignment, manifest *rolev1.RoleManifest, phase seal.Phase, status membership.Status, contacted bool) string {
	makesCluster := guarded(manifest)
	switch {
	case status.State == membership.Disowning:
		return "the node was removed from its cluster"
	case known.Drained && !makesCluster:
		return "the node is drained"
	case status.State == membership.Home:
		return ""
	case phase == seal.Member:
	case !phase.Before(seal.Registering):
		return "waits until the cluster has taken the node in"
	case makesCluster:
		return ""
	default:
		return "waits until the cluster is made"
	}
	switch {
	case status.State == membership.Split && (contacted || !status.Fresh) && manifest.GetInSplit() == rolev1.SplitBehaviour_SPLIT_BEHAVIOUR_STOP:
		return "is stopped while the node is Split"
	}
	return ""
}

// gate says why a role must not be started; empty: it may. One that runs goes on: a core that was started again has not been told anything yet, which is no
// reason to stop what the one before it ran.
func gate(manifest *rolev1.RoleManifest, phase seal.Phase, status membership.Status, contacted bool) string {
	if status.State == membership.Home || phase != seal.Member || contacted || manifest.GetStartsFromCache() {
		return ""
	}
	return fmt.Sprintf("waits for the cluster: the node is %s", membership.Name(status.State))
}
