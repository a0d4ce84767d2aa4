package roles

import (
	"cmp"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

// A version of a plugin that is new on the node is on trial, if there is one to go back to: it must come to Ready or Degraded and stay without a failure
// for Probation. At its first failure, or if it is refused, the version before runs again, and this one is not tried again before the catalog has another
// digest or an operator restarts the role. Its failures do not use up the budget of the version before.
//
// A version that is Blocked by its machine neither works nor fails: its trial is paused. But if the version before worked until it was replaced, the machine is good enough,
// and the trial is not paused.

// versions is what the versions of a role's plugin came to on this node.
type versions struct {
	// good is the digest of the last version that stood its trial.
	good string
	// back is the last version that did not; nil: there is none. It is never changed.
	back *clusterv1.RolledBack
	// past says that the catalog has had another version since: should back's come again, it is tried again. It is still not gone back to.
	past bool
	// absent is as back, of a version that could not even be tried as the node is now. It is not kept: with every plan it is found out anew.
	absent *clusterv1.RolledBack
}

// gone reports whether the node has gone back from a version that the catalog still has.
func (v *versions) gone() bool { return v.back != nil && !v.past }

func parseVersions(file historyFile) (versions, error) {
	v := versions{good: file.Good, past: file.Past}
	if len(file.Back) == 0 || string(file.Back) == "null" {
		return v, nil
	}
	v.back = new(clusterv1.RolledBack)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(file.Back, v.back); err != nil {
		return versions{}, fmt.Errorf("back: %w", err)
	}
	if v.back.GetTime().CheckValid() != nil {
		v.back.Time = nil
	}
	v.back.Version, v.back.Digest = shownText(v.back.GetVersion(), maxLine), shownText(v.back.GetDigest(), maxLine)
	v.back.Reason = shownText(v.back.GetReason(), maxCause)
	return v, nil
}

func (v *versions) keep(file *historyFile) (err error) {
	file.Good, file.Past = v.good, v.past
	if v.back != nil {
		file.Back, err = protojson.Marshal(v.back)
	}
	return err
}

// rolledBack describes a version that does not run here.
func rolledBack(record *clusterv1.PluginRecord, reason string) *clusterv1.RolledBack {
	return &clusterv1.RolledBack{
		Version: record.GetVersion(), Digest: digestOf(record), Reason: shownText(reason, maxCause), Time: timestamppb.New(time.Now()),
	}
}

func digestOf(record *clusterv1.PluginRecord) string { return record.GetDigests()[store.Platform] }

// inForce chooses the version that is in force of the plugin of a role that is desired. news, if not nil, is why the version before is in force, and had
// not been so before.
func (h *history) inForce(d DesiredRole, stored func(digest string) bool) (chosen DesiredRole, news *clusterv1.RolledBack) {
	h.mu.Lock()
	defer h.mu.Unlock()
	role, v := d.Assignment.GetRole(), &h.versions
	newest := digestOf(d.Plugin)
	if v.gone() && v.back.GetDigest() != newest {
		v.past, h.due = true, true // the actor writes it: the reconciler does not wait for the disk
	}
	if d.Previous == nil {
		v.absent = nil
		return d, nil
	}
	before := *d.Previous
	before.Previous = nil
	if digest := digestOf(before.Plugin); digest == "" || digest == newest || store.ManifestOf(before.Plugin, role) == nil || !stored(digest) {
		v.absent = nil
		return d, nil
	}
	if v.gone() {
		before.back = v.back
		return before, nil
	}
	absent := ""
	switch {
	case store.ManifestOf(d.Plugin, role) == nil:
		absent = "it does not offer the role"
	case newest == "":
		absent = "the catalog has no executable of it for " + store.Platform
	case !stored(newest) && v.good != newest:
		// One that ran here and is gone is not gone back from: to take a file away is no way to have an older version run.
		absent = "its executable is not stored on this node: add the plugin again here (reeve plugin add)"
	}
	if absent != "" {
		if v.absent.GetReason() != absent || v.absent.GetDigest() != newest || v.absent.GetVersion() != d.Plugin.GetVersion() {
			v.absent = rolledBack(d.Plugin, absent)
			news = v.absent
		}
		before.back = v.absent
		return before, news
	}
	v.absent = nil
	// What did not come to work itself is nothing to go back to.
	d.onTrial = v.good != newest && (v.back == nil || v.back.GetDigest() != digestOf(before.Plugin))
	return d, nil
}

// goBack takes note that a version has not stood its trial, and returns the failure as it is shown. The budget does not count it.
func (h *history) goBack(back *clusterv1.RolledBack, failure *clusterv1.Failure, budget Budget) *clusterv1.Failure {
	defer h.save()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions.back, h.versions.past = back, false
	h.counted = h.within(failure.GetTime().AsTime(), budget.Window)
	h.note(failure, budget)
	return h.last
}

// confirm takes note that a version has stood its trial.
func (h *history) confirm(digest string) {
	defer h.save()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions.good, h.due = digest, true
	if h.versions.back.GetDigest() == digest {
		h.versions.back, h.versions.past = nil, false
	}
}

// inForce is what is desired with the version of each role's plugin that is in force, and what is barred on hold. It makes the actors that are missing,
// since they know what the versions came to.
func (r *Reconciler) inForce() Desired {
	var desired Desired
	for _, d := range r.desired.Roles {
		role := d.Assignment.GetRole()
		a, ok := r.actors[role]
		if !ok {
			a = newActor(r, role)
			r.actors[role] = a
		}
		chosen, news := a.history.inForce(d, r.config.Stored)
		if news != nil {
			a.log.Warn("a version cannot be tried; the one before runs on", "version", news.GetVersion(), "reason", news.GetReason())
			a.recordBack(news, chosen.Plugin, "")
		}
		if why := r.barred[role]; why != "" {
			chosen.Hold = why
		}
		desired.Roles = append(desired.Roles, chosen)
	}
	return desired
}

// recordBack makes an event of going back.
func (a *actor) recordBack(back *clusterv1.RolledBack, to *clusterv1.PluginRecord, instanceID string) {
	a.record(serious, eventRolledBack, instanceID,
		fmt.Sprintf("runs version %s again, since version %s does not come to work: %s", to.GetVersion(), back.GetVersion(), back.GetReason()),
		"version", back.GetVersion(), "digest", back.GetDigest(), "to_version", to.GetVersion(), "to_digest", digestOf(to), "cause", back.GetReason())
}

// trial is that of a version.
type trial struct {
	record, previous *clusterv1.PluginRecord
	// worked says that the version before did its work here until it gave way.
	worked bool
	// begun is when the version was launched or stopped being Blocked; since is when it was first Ready or Degraded after that.
	begun, since time.Time
	// halted says that the trial stands still, since the machine keeps the role Blocked.
	halted bool
}

// beginTrial has what the actor launches, or follows, be on trial if its version is, and no longer if there is nothing to go back to any more.
func (a *actor) beginTrial(of verdict) {
	switch {
	case of.desired == nil || !of.desired.onTrial:
		a.trial = nil
	case a.trial == nil:
		before := of.desired.Previous.Plugin
		a.trial = &trial{record: of.desired.Plugin, previous: before, begun: a.begun, worked: a.works != "" && a.works == digestOf(before)}
	}
}

func working(state rolev1.RoleState) bool {
	return state == rolev1.RoleState_ROLE_STATE_READY || state == rolev1.RoleState_ROLE_STATE_DEGRADED
}

// followWork takes note of which version does its work here, of those that are not on trial.
func (a *actor) followWork(state rolev1.RoleState) {
	switch {
	case a.trial != nil || a.debugging():
	case working(state):
		a.works = digestOf(a.launched.desired.Plugin)
	case state == rolev1.RoleState_ROLE_STATE_BLOCKED:
		a.works = ""
	}
}

// followTrial takes note of the state that an instance says that it is in, and returns what tells when its trial is over; nil: it is not on trial.
func (a *actor) followTrial(state rolev1.RoleState, unwanted bool) <-chan time.Time {
	t := a.trial
	if t == nil || unwanted {
		return nil
	}
	t.follow(state)
	if t.halted {
		return nil
	}
	return time.After(time.Until(t.over(a.r.config)))
}

// follow takes note of a state.
func (t *trial) follow(state rolev1.RoleState) {
	halted := t.halted
	t.halted = state == rolev1.RoleState_ROLE_STATE_BLOCKED && !t.worked
	switch {
	case state == rolev1.RoleState_ROLE_STATE_BLOCKED && !t.since.IsZero():
		t.begun, t.since = time.Now(), time.Time{} // it is to show anew that it works
	case halted && !t.halted:
		t.begun = time.Now()
	}
	if working(state) && t.since.IsZero() {
		t.since = time.Now()
	}
}

// over is when the trial is over at the latest.
func (t *trial) over(c Config) time.Time {
	if t.since.IsZero() {
		return t.begun.Add(c.TrialPatience)
	}
	return t.since.Add(c.Probation)
}

// probationOver ends a trial that nothing has ended before, and reports whether it was stood.
func (a *actor) probationOver() (stood bool) {
	select {
	case <-a.instance.Done():
		return false // the core itself may have been away
	default:
	}
	t := a.trial
	if t.since.IsZero() {
		cause := "it was neither Ready nor Degraded within " + spell(a.r.config.TrialPatience)
		if status, _ := a.instance.Status().Get(); status.GetState() == rolev1.RoleState_ROLE_STATE_BLOCKED {
			cause += ", where version " + t.previous.GetVersion() + " was, but Blocked" + because(status.GetReason())
		}
		a.failing = &failing{cause: cause}
		return false
	}
	a.log.Info("the version has come to work and is kept", "version", t.record.GetVersion())
	a.trial = nil
	a.history.confirm(digestOf(t.record))
	a.r.replan()
	return true
}

// withTrial adds to a reason that the version is on trial.
func (a *actor) withTrial(reason string) string {
	t := a.trial
	if t == nil {
		return reason
	}
	over := t.over(a.r.config).UTC().Format(time.RFC3339)
	told := fmt.Sprintf("version %s is on trial until %s, and must be Ready by then: otherwise version %s runs again", t.record.GetVersion(), over, t.previous.GetVersion())
	switch {
	case t.halted:
		told = fmt.Sprintf("version %s is on trial; the trial is paused while the role is Blocked", t.record.GetVersion())
	case !t.since.IsZero():
		told = fmt.Sprintf("version %s is on trial until %s: if it fails, version %s runs again", t.record.GetVersion(), over, t.previous.GetVersion())
	}
	if reason != "" {
		told = reason + "; " + told
	}
	return told
}

// goBack has the version before run again, if what failed was on trial; otherwise it reports false and does nothing.
func (a *actor) goBack(kind string, f *clusterv1.Failure) bool {
	t := a.trial
	if t == nil || a.seen.desired == nil || !a.seen.desired.onTrial {
		return false
	}
	back := rolledBack(t.record, cmp.Or(f.GetCause(), "it failed"))
	f = a.history.goBack(back, f, a.r.config.budget(a.role))
	a.log.Error("a version does not come to work; the one before runs again", "version", back.GetVersion(), "previous", t.previous.GetVersion(), "reason", back.GetReason())
	a.recordFailure(warning, kind, "failed on trial: "+f.GetCause(), f)
	a.recordBack(back, t.previous, f.GetInstanceId())
	a.trial, a.fallen = nil, ""
	a.backoff.Reset()
	a.r.replan()
	return true
}
