package roles

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// shown is what an actor says of its role beyond what it knows anyway.
type shown struct {
	state   hostv1.InstanceState
	reason  string
	nextTry time.Time
	status  *rolev1.WatchResponse
}

// show describes the role and puts that on the board.
func (a *actor) show(s shown) {
	a.describe(s)
	a.r.board.put(a.role, a.last)
}

// describe makes the role's entry of the board.
func (a *actor) describe(s shown) {
	now := time.Now()
	status := &clusterv1.InstanceStatus{
		Role: a.role, State: s.state, Restarts: a.restarts, LastFailure: a.history.lastFailure(),
		Reason:    strings.ReplaceAll(s.reason, "\n", "; "), // joined errors have lines
		Endpoints: s.status.GetEndpoints(), Values: s.status.GetValues(),
		Since: timestamppb.New(now),
	}
	if before := a.last.status; before.GetState() == s.state {
		status.Since = before.GetSince()
	} else {
		a.blockedTold = false
		if a.instance != nil {
			a.instance.KeepState(s.state, now)
		}
	}
	if !s.nextTry.IsZero() {
		status.NextTry = timestamppb.New(s.nextTry)
	}
	// An instance is shown as what it was launched for, until it is gone.
	of := a.seen
	e := entry{status: status}
	if a.instance != nil {
		of = a.launched
		process := a.instance.Process()
		e.remit, e.process, e.conn, e.sandbox = a.instance.Remit(), &process, a.instance.Conn(), sandboxOf(a.instance)
		status.InstanceId, status.Pid, status.Started = e.remit.InstanceID, int64(process.PID), timestamppb.New(a.started)
		status.Debug = e.remit.Debugged
	} else if s.state != starting { // when an instance is being made
		e.idle = a.seen.generation
	}
	if of.desired != nil {
		record := of.desired.Plugin
		status.Plugin, status.PluginVersion = record.GetName(), record.GetVersion()
		status.Digest = record.GetDigests()[store.Platform]
		status.ConfigurationGeneration = of.desired.Assignment.GetGeneration()
		manifest := store.ManifestOf(record, a.role)
		status.InSplit, status.StopGrace, e.provided = manifest.GetInSplit(), manifest.GetStopGrace(), manifest.GetProvides()
	}
	status.Tier = tierOf(e.remit, of.desired, a.role)
	if a.seen.desired != nil {
		status.RolledBack = a.seen.desired.back
	}
	a.last = e
}

// describeStatus makes the role's entry of the board from what the role says of itself.
func (a *actor) describeStatus(status *rolev1.WatchResponse, note string) {
	s := shown{status: status, reason: status.GetReason(), state: starting}
	switch status.GetState() {
	case rolev1.RoleState_ROLE_STATE_READY:
		s.state = ready
	case rolev1.RoleState_ROLE_STATE_DEGRADED:
		s.state = degraded
	case rolev1.RoleState_ROLE_STATE_BLOCKED:
		s.state = blocked
	case rolev1.RoleState_ROLE_STATE_STOPPING, rolev1.RoleState_ROLE_STATE_STOPPED:
		s.state = stopping
	}
	if s.state != stopping {
		s.reason = a.withDebug(a.withTrial(s.reason))
	}
	if note != "" {
		s.reason = note
	}
	a.describe(s)
}
