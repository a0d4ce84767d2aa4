package roles

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// ErrLeave, as the cause of the end of Run's context, has Run leave the instances running for the core that comes next. Those of roles that end with
// their core are stopped, and so is what is being launched.
var ErrLeave = errors.New("roles: the core leaves its roles to the next one")

// adopt makes the actors of the instances that run already, and shows all of them before anybody can look.
func (r *Reconciler) adopt() {
	for _, instance := range r.config.Adopted {
		role := instance.Remit().Role
		a := newActor(r, role)
		r.actors[role] = a
		a.adopt(instance)
	}
}

// adopt has the actor begin with an instance: as if it had launched it itself.
func (a *actor) adopt(instance Running) {
	spec := instance.Spec()
	d := &DesiredRole{
		Assignment: &clusterv1.RoleAssignment{Role: a.role, Configuration: spec.Configuration, Generation: spec.Generation},
		Plugin:     spec.Plugin,
	}
	v := verdict{desired: d, manifest: store.ManifestOf(d.Plugin, a.role), run: true}
	v.fingerprint, v.retry = fingerprints(d, a.role)
	a.seen, a.launched, a.manifest = v, v, v.manifest
	a.instance, a.closeHost = instance, func() {}
	a.begun, a.started, a.restarts = time.Now(), instance.Launched(), spec.Restarts
	// What the core before showed: if it still holds, it holds since then.
	if state, since := instance.KeptState(); state != 0 {
		a.last.status = &clusterv1.InstanceStatus{State: state, Since: timestamppb.New(since)}
	}
	status, _ := instance.Status().Get()
	a.describeStatus(status, "")
	a.r.board.put(a.role, a.last)
	// What was told by the core that launched it is not told again. Nobody has kept the reason that it told, so one that has changed since counts as told.
	a.news.told, a.news.reason = a.last.status.GetState(), a.last.status.GetReason()
	a.wasReady = status.GetState() != rolev1.RoleState_ROLE_STATE_STARTING
}

// reopen serves the adopted instances, before anything is planned.
func (r *Reconciler) reopen() {
	for _, instance := range r.config.Adopted {
		a := r.actors[instance.Remit().Role]
		_, closeHost, err := r.config.Hosts.Open(instance.Remit())
		if err != nil {
			// It cannot do without.
			a.log.Error("the host socket of an adopted instance cannot be served; it is started again", "instance", instance.Remit().InstanceID, "error", err)
			a.renew = true
		} else {
			a.closeHost = closeHost
		}
		a.health = follow(instance, r.config.Liveness, r.config.Hung)
		spec := instance.Spec()
		a.record(info, eventAdopted, instance.Remit().InstanceID, "runs on under a core that was started again",
			"plugin", spec.Plugin.GetName(), "version", spec.Plugin.GetVersion())
	}
}

// leave lets go of the instance. Its host socket and what is shown of it stay as they are: whoever else looks is to take it for running, which it does.
func (a *actor) leave() {
	a.health.stop()
	a.log.Info("left to the next core", "instance", a.instance.Remit().InstanceID)
	a.instance.Leave()
	a.instance, a.closeHost, a.health, a.left = nil, nil, nil, true
}

// idle takes note that the actor of a role has no instance in the plan of a generation, though one is shown.
func (b *board) idle(role string, generation uint64) {
	b.change(func(entries map[string]entry) bool {
		e := entries[role]
		e.idle = generation
		entries[role] = e
		return true
	})
}
