package node

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

// chooser is the one writer of what should run on the node. It chooses between what the node knew when it started and what the cluster says,
// and keeps the latter.
type chooser struct {
	log hclog.Logger
	// path is the file of the assignment.
	path  string
	known *assignment
	// committed is what the cluster assigned when it took the node in; it may be nil.
	committed *event.Value[*assignment]

	phase      *event.Value[seal.Phase]
	membership *event.Value[membership.Status]
	problem    *event.Value[*membership.Problem]
	view       *event.Value[*cluster.View]
	// full is why roles must not run that fill the disk, by role; imported is set anew with every executable that was imported, which may be what a role
	// waits for. Both may be nil.
	full     *event.Value[map[string]string]
	imported *event.Value[string]
	// missing says what of a role's sandbox this node cannot enforce; nil: nothing.
	missing func(plugin.Spec) []*clusterv1.Missing

	desired *event.Value[roles.Desired]
}

func (c chooser) run(ctx context.Context) error {
	phases, states, problems, views := c.phase.Watch(), c.membership.Watch(), c.problem.Watch(), c.view.Watch()
	if c.full == nil {
		c.full = new(event.Value[map[string]string])
	}
	if c.imported == nil {
		c.imported = new(event.Value[string])
	}
	if c.committed == nil {
		c.committed = new(event.Value[*assignment])
	}
	fulls, imports, commits := c.full.Watch(), c.imported.Watch(), c.committed.Watch()
	kept := c.known
	// adopted is what of committed was taken over.
	var adopted *assignment
	for {
		var again <-chan time.Time
		phase := latest(phases)
		status := latest(states)
		problem := latest(problems)
		view := latest(views)
		full, _ := fulls.Latest()
		_, _ = imports.Latest()
		contacted := view != nil
		if committed := latest(commits); committed != adopted {
			adopted = committed
			// It is on the disk by now, over what was there, so where the cluster has said more already, that is written once more.
			if kept = nil; !contacted {
				c.known, kept = committed, committed
			}
		}
		if contacted {
			assigned := &assignment{
				Roles: view.Node.GetRoles(), Plugins: view.Plugins, Policy: view.Policy, Drained: view.Node.GetDrained(),
				// A view does not say it.
				ClusterUser: cmp.Or(c.known.clusterUser(), adopted.clusterUser()),
			}
			// Before the node is a member, what the cluster said when it took it in is all that is kept.
			enrols := !phase.Before(seal.Registering) && phase.Before(seal.Member)
			if !enrols && (kept == nil || !assigned.equal(kept)) {
				if err := writeAssignment(c.path, assigned); err != nil {
					// The node goes on: what it cannot keep it is told again at the next start, by roles that it has kept.
					c.log.Error("the assigned roles cannot be kept; after a restart the node would begin with older ones", "error", err, "again", rewrite)
					again = time.After(rewrite)
				} else {
					kept = assigned
				}
			}
			c.known = assigned
		}
		c.desired.Set(c.complete(phase, status, contacted, problem, full))
		select {
		case <-ctx.Done():
			return nil
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

// latest is the present value, or the zero value if there is none yet.
func latest[T any](watcher *event.Watcher[T]) T {
	value, _ := watcher.Latest()
	return value
}

func (a *assignment) equal(b *assignment) bool {
	same := func(x, y proto.Message) bool { return proto.Equal(x, y) }
	return slices.EqualFunc(a.Roles, b.Roles, func(x, y *clusterv1.RoleAssignment) bool { return same(x, y) }) &&
		slices.EqualFunc(a.Plugins, b.Plugins, func(x, y *clusterv1.PluginRecord) bool { return same(x, y) }) &&
		same(a.Policy, b.Policy) && a.Drained == b.Drained && a.ClusterUser == b.ClusterUser
}

// choose says what should run: all assigned roles, some of them held back as long as the node's membership asks for it.
func choose(known *assignment, phase seal.Phase, status membership.Status, contacted bool, problem *membership.Problem) roles.Desired {
	var desired roles.Desired
	for _, role := range known.Roles {
		record, manifest := known.find(role.GetRole())
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
func hold(known *assignment, manifest *rolev1.RoleManifest, phase seal.Phase, status membership.Status, contacted bool) string {
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
