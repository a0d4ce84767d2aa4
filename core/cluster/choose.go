package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// answerWithin is how soon a curator must answer before the next is tried, and how long one that has stopped to answer is waited for. It is doubled with every
	// time that none of them has, up to callTimeout, so that a machine on which everything is slow finds one all the same.
	answerWithin = time.Second
	// restFirst and restMost bound how long a curator that was left is tried after the others only, and this node's own one is not gone back to.
	restFirst = 2 * time.Second
	restMost  = time.Minute
	// restRefused is the same for one of another store than the node follows, which the node may follow as soon as it has been without its own for followAfter.
	restRefused = 5 * time.Second
)

// choice says which curator is next. It belongs to the goroutine of Run.
type choice struct {
	rests map[string]rest
	// patience is how soon a curator must answer.
	patience time.Duration
	pauses   *backoff.ExponentialBackOff
	// works is the address of the curator of the last session, which did not end for want of an answer; empty: it did.
	works string
}

// rest is what became of a curator that did not answer.
type rest struct {
	// until is zero if the curator has worked since it was left.
	left, until time.Time
	length      time.Duration
	// who and problem are for people.
	who, problem string
}

func newChoice() *choice {
	pauses := &backoff.ExponentialBackOff{InitialInterval: minPause, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: maxPause}
	pauses.Reset()
	return &choice{rests: make(map[string]rest), patience: answerWithin, pauses: pauses}
}

// key tells curators apart: another instance at the same address is another one.
func (t target) key() string {
	if t.own {
		return t.address + " " + t.instance
	}
	return t.address
}

// next returns the curator to go to, and how long to wait before that. There is at least one.
func (ch *choice) next(list []target, now time.Time) (target, time.Duration) {
	maps.DeleteFunc(ch.rests, func(key string, _ rest) bool {
		return !slices.ContainsFunc(list, func(t target) bool { return t.key() == key })
	})
	rested := slices.DeleteFunc(slices.Clone(list), func(t target) bool { return now.Before(ch.rests[t.key()].until) })
	if len(rested) > 0 {
		if i := slices.IndexFunc(rested, func(t target) bool { return t.address == ch.works }); i > 0 && (!rested[0].own || !rested[0].ready) {
			return rested[i], 0
		}
		return rested[0], 0
	}
	// None has answered. The one that was left first is tried again.
	return slices.MinFunc(list, func(a, b target) int { return ch.rests[a.key()].left.Compare(ch.rests[b.key()].left) }), ch.pauses.NextBackOff()
}

// leave takes note that a curator was left since it did not answer, or the node refuses it.
func (ch *choice) leave(to target, list []target, problem string, refused bool, worked time.Duration, now time.Time) {
	most := restMost
	if refused {
		most = restRefused
	}
	length := min(2*ch.rests[to.key()].length, most)
	if length == 0 || worked > restMost {
		length = restFirst
	}
	ch.rests[to.key()] = rest{left: now, until: now.Add(length), length: length, who: to.who(), problem: problem}
	ch.works = ""
	if !slices.ContainsFunc(list, func(t target) bool { return now.After(ch.rests[t.key()].until) }) {
		ch.patience = min(2*ch.patience, callTimeout)
	}
}

// worked takes note that a curator answers.
func (ch *choice) worked(to target) {
	ch.works = to.address
	ch.patience = answerWithin
	ch.pauses.Reset()
}

// well ends the rest of a curator that works. How long it was is not forgotten: one that works for a moment now and then is left for longer every time.
func (ch *choice) well(to target) {
	if r, ok := ch.rests[to.key()]; ok {
		r.until = time.Time{}
		ch.rests[to.key()] = r
	}
}

// ended takes note that a session with a curator has ended, which had worked for so long.
func (ch *choice) ended(to target, worked time.Duration) {
	if ch.rests[to.key()].until.IsZero() && worked > restMost {
		delete(ch.rests, to.key())
	}
}

// failed says what came of those that were tried, in the same words as long as nothing else comes of them.
func (ch *choice) failed() string {
	var list []string
	for _, r := range ch.rests {
		if r.until.IsZero() {
			continue // it has worked since
		}
		list = append(list, r.who+": "+r.problem)
	}
	slices.Sort(list)
	switch len(list) {
	case 0:
		return ""
	case 1:
		return list[0]
	}
	return fmt.Sprintf("none of %d curators works: %s", len(list), strings.Join(list, "; "))
}

func (t target) who() string { return fmt.Sprintf("%s at %s", t.instance, t.address) }

// pulse is how one of the ways is by which a session sees that its curator answers.
type pulse struct {
	known, well bool
	// since is when it became so; of a call that was not answered, when it was sent.
	since   time.Time
	problem string
}

// condition is how a session is.
type condition struct {
	watch, beat pulse
	// healthy is when both were well for the first time; zero: they were not yet.
	healthy time.Time
}

func (c condition) well() bool { return c.watch.well && c.beat.well }

// felt takes note of how a pulse is.
func (s *session) felt(of func(*condition) *pulse, sent time.Time, err error) {
	s.condition.Update(func(c condition) condition {
		p := of(&c)
		if err == nil {
			*p = pulse{known: true, well: true, since: time.Now()}
			if c.healthy.IsZero() && c.well() {
				c.healthy = time.Now()
			}
			return c
		}
		if !p.known || p.well {
			p.since = sent
		}
		p.known, p.well, p.problem = true, false, explain(err)
		return c
	})
}

func watchPulse(c *condition) *pulse { return &c.watch }
func beatPulse(c *condition) *pulse  { return &c.beat }

// givenUp says whether a session that began then is to be left if there is another curator, why, and if not, when to look again (zero: when something changes).
func (c condition) givenUp(began, now time.Time, patience time.Duration) (leave bool, problem string, look time.Time) {
	if c.well() {
		return false, "", time.Time{}
	}
	for _, p := range []pulse{c.watch, c.beat} {
		until := began.Add(patience)
		switch {
		case p.well:
			continue
		case p.known && c.healthy.IsZero():
			return true, p.problem, time.Time{}
		case p.known:
			until = p.since.Add(answerWithin)
		}
		if !now.Before(until) {
			if problem = p.problem; problem == "" {
				problem = fmt.Sprintf("it did not answer within %s", patience)
			}
			return true, problem, time.Time{}
		}
		if look.IsZero() || until.Before(look) {
			look = until
		}
	}
	return false, "", look
}

// sleep waits, and says whether the context has not ended.
func sleep(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
	return ctx.Err() == nil
}
