package roles

import (
	"cmp"
	"context"
	"fmt"

	"github.com/reeveproject/reeve/core/plugin"
)

// order is the last request of an operator to start a role anew; n counts the requests.
type order struct {
	n uint64
	// debug is what it is to be started as; nil: as what the catalog has.
	debug *plugin.Debugged
	// why is the reason for which its instance is stopped; "": an operator restarts it.
	why string
}

// Debug stops the instance of a role, as Restart does, and makes a process that was started by hand the next instance. When that process ends, the role runs as before. Its
// end is not a failure, it is no trial of a version, and its health is not checked. Debug returns the ID of the instance that it stops, or "" if none runs. With dryRun it
// changes nothing.
//
// A *NotDesiredError names the roles that there are; a *plugin.DebugError says that the process is of another plugin, or that the role may not run now.
func (r *Reconciler) Debug(ctx context.Context, d *plugin.Debugged, dryRun bool) (instanceID string, err error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("roles: debug %s: %w", d.Role, err)
	}
	a, err := r.find(d.Role)
	if err != nil {
		return "", err
	}
	newest, _ := a.target.Get()
	of := newest.desired.Plugin
	if of.GetName() != d.Plugin {
		return "", &plugin.DebugError{Role: d.Role, Socket: d.Socket(), Err: fmt.Errorf("the process is the plugin %s, but the role belongs to the plugin %q", d.Plugin, of.GetName())}
	}
	// Otherwise the order would be carried out hours later, when nobody expects it.
	if !newest.run || newest.gate != "" {
		return "", &plugin.DebugError{Role: d.Role, Socket: d.Socket(), Err: fmt.Errorf("the role may not run now: %s", cmp.Or(newest.reason, newest.gate))}
	}
	entries, _ := r.board.entries.Get()
	instanceID = entries[d.Role].status.GetInstanceId()
	if dryRun {
		return instanceID, nil
	}
	if a.history.clear() {
		r.replan()
	}
	message := fmt.Sprintf("is debugged: process %d, which was started by hand, replaces the instance and runs in no sandbox", d.PID)
	if !d.Declares(of) {
		message += "; its manifest of the role differs from the catalog's, which is used"
	}
	a.record(warning, eventDebugged, instanceID, message)
	a.log.Warn("a process that was started by hand takes the place of the instance", "instance", instanceID, "pid", d.PID)
	a.orders.Update(func(o order) order { return order{n: o.n + 1, debug: d} })
	return instanceID, nil
}

// EndDebug stops an instance whose process was started by hand, and has the role run as before. why is the reason, for the events. It does nothing if that is not the role's
// instance any more. It returns when that has begun.
func (r *Reconciler) EndDebug(role, instanceID, why string) error {
	a, err := r.find(role)
	if err != nil {
		return err
	}
	entries, _ := r.board.entries.Get()
	if now := entries[role].status; !now.GetDebug() || now.GetInstanceId() != instanceID {
		return nil
	}
	a.log.Warn("the process that was started by hand is stopped", "instance", instanceID, "why", why)
	a.orders.Update(func(o order) order { return order{n: o.n + 1, why: why} })
	return nil
}

// debugging reports whether the instance is a process that was started by hand.
func (a *actor) debugging() bool { return a.instance != nil && a.instance.Remit().Debugged }

// withDebug adds to a reason that the instance was started by hand.
func (a *actor) withDebug(reason string) string {
	if !a.debugging() {
		return reason
	}
	told := "debugged: its process was started by hand, and is in no sandbox"
	if reason != "" {
		told = reason + "; " + told
	}
	return told
}

// notDebugged reports that the process could not become the instance. The role goes on as before.
func (a *actor) notDebugged(instanceID string, err error) {
	a.log.Warn("the process that was started by hand is not taken", "error", err)
	a.record(warning, eventNotLaunched, instanceID, "cannot be debugged: "+causeOf(err), "cause", causeOf(err))
}

// unasked is the health of an instance that nobody asks for it.
func unasked() *health { return &health{end: func() {}} }
