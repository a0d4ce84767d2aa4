package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/reeveproject/reeve/core/membership"
)

// judgeContact publishes whether there is contact, until the context ends.
func (c *Client) judgeContact(ctx context.Context) {
	refusals := c.refused.Watch()
	ways, watches, beats, reports := c.way.Watch(), c.watching.Watch(), c.beating.Watch(), c.reporting.Watch()
	identities, certificates, sets := c.config.Identity.Watch(), c.shown.Watch(), c.config.ClockSet.Watch()
	var told, warned clock
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ways.Changed():
		case <-watches.Changed():
		case <-beats.Changed():
		case <-reports.Changed():
		case <-identities.Changed():
		case <-certificates.Changed():
		case <-sets.Changed():
		case <-refusals.Changed():
		case <-timer.C:
		}
		node, _ := identities.Latest()
		shown, _ := certificates.Latest()
		_, _ = sets.Latest()
		refused, _ := refusals.Latest()
		to, _ := ways.Latest()
		watch, _ := watches.Latest()
		beat, _ := beats.Latest()
		report, _ := reports.Latest()
		before, _ := c.contact.Get()
		now := time.Now()
		contact, until := judge(before.OK, to, watch, beat, now)
		if found := c.clockNow(node, shown); !found.same(told) {
			told = found
		}
		switch {
		case refused != nil:
			contact, until = membership.Contact{Reason: refused.Reason}, time.Time{}
		case told.wrong() && contact.OK:
			// What was connected while the clock was right stays so. Nothing that begins now would be.
			contact.Reason = told.String()
		case told.wrong():
			contact.Reason = told.String() + ". " + contact.Reason
		case contact.OK && report != "":
			contact.Reason = "the cluster does not take what this node reports: " + report
		}
		switch {
		case contact.OK:
			c.lost.Store(nil)
			c.had.Store(true)
		case before.OK:
			c.lost.Store(&now)
		}
		if contact != before {
			c.contact.Set(contact)
			switch {
			case contact.OK && !before.OK:
				c.config.Log.Info("the cluster is in reach", "curator", to.to.address, "instance", to.to.instance)
			case !contact.OK && before.OK:
				c.config.Log.Warn("the cluster is out of reach", "reason", contact.Reason)
			}
		}
		if told != warned {
			warned = told
			if told.wrong() {
				c.config.Log.Warn("the clock cannot be right", "reason", told.String())
			}
		}
		if until.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(until.Sub(now))
		}
	}
}

// judge says whether there is contact, and until when that stays true if nothing happens (zero: for ever). Contact begins when both the
// watch and the heartbeat are well; it ends when one of them has been ill for a heartbeat's TTL, so that a curator that merely restarts, or is
// left for another, goes unnoticed. Since it begins with a heartbeat of the last half of a TTL only, it lasts as long as the other half at least: however the
// network behaves, contact is not lost more than once in half of a TTL. A curator whose store has no quorum answers no heartbeat, so that it is no contact.
func judge(had bool, to way, watch watching, beat beating, now time.Time) (membership.Contact, time.Time) {
	expires := beat.last.Add(beat.ttl)
	fresh := !beat.last.IsZero() && now.Before(expires)
	if fresh && watch.up && (had || now.Before(beat.last.Add(beat.ttl/2))) {
		return membership.Contact{OK: true}, expires
	}
	tolerated := watch.since.Add(beat.ttl)
	if had && fresh && now.Before(tolerated) {
		if tolerated.Before(expires) {
			expires = tolerated
		}
		return membership.Contact{OK: true}, expires
	}
	return membership.Contact{Reason: why(to, watch, beat, fresh)}, time.Time{}
}

// why says what is in the way of contact.
func why(to way, watch watching, beat beating, fresh bool) string {
	what := "the cluster has not been reached yet"
	switch {
	case !fresh && !beat.last.IsZero():
		what = "no heartbeat has reached the cluster since " + stamp(beat.last)
	case fresh && watch.up:
		what = "contact begins anew with the next heartbeat"
	case fresh && !watch.since.IsZero():
		what = "no watch of the cluster has been open since " + stamp(watch.since)
	}
	switch {
	case to.missing != "":
		return fmt.Sprintf("%s: %s (since %s)", what, to.missing, stamp(to.since))
	case to.failed != "":
		return fmt.Sprintf("%s: %s%s", what, to.failed, moved(to, fresh))
	case !fresh && beat.problem != "":
		return fmt.Sprintf("%s: heartbeat to %s at %s: %s (since %s)%s", what, to.to.instance, to.to.address, beat.problem, stamp(beat.failing), moved(to, fresh))
	case !watch.up && watch.problem != "":
		return fmt.Sprintf("%s: watch of %s at %s: %s (since %s)", what, to.to.instance, to.to.address, watch.problem, stamp(watch.since))
	default:
		return fmt.Sprintf("%s: waiting for an answer of %s at %s", what, to.to.instance, to.to.address)
	}
}

// moved says what to do if the curators have moved while the node was off, which it cannot know. Whoever has one of its own that runs is told of the move by the store.
func moved(to way, fresh bool) string {
	if fresh || to.to.own {
		return ""
	}
	return "; if the cluster's curators have other addresses now, say on which machine one is (`reeve node peers self ADDRESS`, on this machine), or name it as network.curators in this node's parameters and restart reeved"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
