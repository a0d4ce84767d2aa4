package events

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/reeveproject/reeve/core/membership"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Sources is what Follow watches.
type Sources struct {
	// Version is the core's.
	Version string
	// Reopened says that the core had started before, and opened its volume again: that is no start. Sealed reports whether the sources end because
	// somebody seals the node: that is no stop.
	Reopened bool
	Sealed   func() bool
	// Membership is the node's membership of its cluster.
	Membership *event.Value[membership.Status]
	// Store is the state of the local member of the store; nil in it: none runs, of which nothing follows.
	Store *event.Value[*consensusv1.StoreStatus]
	// Addresses is the node's addresses.
	Addresses *event.Value[[]string]
}

// settle is how long something must keep the store from its work before that is recorded: an election, as at every start, takes less.
const settle = 3 * time.Second

// Follow records that the core has started, what changes in the sources, and, when the context ends, that the core stops: the context should end when it
// is asked to. It returns nil then. Changes that were undone before they were looked at are not recorded.
func Follow(ctx context.Context, to Recorder, sources Sources) error {
	if !sources.Reopened {
		to.Record(&nodev1.Event{
			Type: CoreStarted, Severity: nodev1.Severity_SEVERITY_INFO,
			Message: "the core of the node has started, version " + sources.Version, Details: map[string]string{"version": sources.Version},
		})
	}
	w := watch{
		to: to, membership: sources.Membership.Watch(), store: sources.Store.Watch(), addresses: sources.Addresses.Watch(),
		state: membership.Unknown,
	}
	for {
		w.look()
		var settled <-chan time.Time
		if !w.due.IsZero() {
			settled = time.After(time.Until(w.due))
		}
		select {
		case <-ctx.Done():
			w.look()
			if !sources.Sealed() {
				to.Record(&nodev1.Event{Type: CoreStopping, Severity: nodev1.Severity_SEVERITY_INFO, Message: "the core of the node was asked to stop"})
			}
			return nil
		case <-w.membership.Changed():
		case <-w.store.Changed():
		case <-w.addresses.Changed():
		case <-settled:
		}
	}
}

// watch is what was last seen of the sources.
type watch struct {
	to         Recorder
	membership *event.Watcher[membership.Status]
	store      *event.Watcher[*consensusv1.StoreStatus]
	addresses  *event.Watcher[[]string]

	state membership.State
	// problem is what was recorded to keep the store from its work. pending does so, too, and is recorded when it is due.
	problem, pending string
	due              time.Time
	known            bool // whether any addresses were seen
	last             []string
}

func (w *watch) look() {
	if status, ok := w.membership.Latest(); ok && status.State != w.state {
		w.member(status)
	}
	if status, ok := w.store.Latest(); ok && status != nil {
		w.stored(status)
	}
	if addresses, ok := w.addresses.Latest(); ok {
		w.addressed(addresses)
	}
}

func (w *watch) member(now membership.Status) {
	severity := nodev1.Severity_SEVERITY_INFO
	switch now.State {
	case membership.Split:
		severity = nodev1.Severity_SEVERITY_WARNING
		if w.state == membership.Unknown {
			// Every member starts so.
			severity = nodev1.Severity_SEVERITY_INFO
		}
	case membership.Disowning:
		severity = nodev1.Severity_SEVERITY_ERROR
	}
	from, to := membership.Name(w.state), membership.Name(now.State)
	w.state = now.State
	w.to.Record(&nodev1.Event{
		Type: MembershipChanged, Severity: severity,
		Message: fmt.Sprintf("the node is %s, and was %s before: %s", to, from, now.Reason),
		Details: map[string]string{"from": from, "to": to, "reason": now.Reason},
	})
}

// stored records where a problem begins, becomes another one, and ends.
func (w *watch) stored(now *consensusv1.StoreStatus) {
	problem := now.GetProblem()
	switch {
	case problem == "" && !now.GetFormed():
		// It has just been launched and does not know yet.
		w.pending, w.due = "", time.Time{}
	case problem == "":
		w.pending, w.due = "", time.Time{}
		if w.problem != "" {
			w.to.Record(&nodev1.Event{
				Type: StoreRecovered, Severity: nodev1.Severity_SEVERITY_INFO,
				Message: "the consensus store is well again", Details: map[string]string{"problem": w.problem},
			})
			w.problem = ""
		}
	case wording(problem) == wording(w.problem):
		w.pending, w.due = "", time.Time{}
	case wording(problem) != wording(w.pending):
		w.pending, w.due = problem, time.Now().Add(settle)
	case !time.Now().Before(w.due):
		w.problem, w.pending, w.due = problem, "", time.Time{}
		severity := nodev1.Severity_SEVERITY_ERROR
		if now.GetQuorum() && slices.ContainsFunc(now.GetMembers(), incomplete) {
			severity = nodev1.Severity_SEVERITY_WARNING // it works without that member
		}
		w.to.Record(&nodev1.Event{
			Type: StoreProblem, Severity: severity,
			Message: "the consensus store is not as it should be: " + problem, Details: map[string]string{"problem": problem},
		})
	}
}

// incomplete reports whether a member of the store does not answer, or not reach others, or is damaged.
func incomplete(member *consensusv1.StoreMember) bool {
	return member.GetSilent() || len(member.GetUnreached()) > 0 || member.GetDamage() != ""
}

// wording is a problem without the numbers in it, which change while it stays the same.
func wording(problem string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, problem)
}

func (w *watch) addressed(now []string) {
	sorted := slices.Sorted(slices.Values(now))
	if w.known && !slices.Equal(sorted, w.last) {
		before, after := strings.Join(w.last, ", "), strings.Join(sorted, ", ")
		message := "the node's addresses are now " + after
		severity := nodev1.Severity_SEVERITY_INFO
		if len(sorted) == 0 {
			message, severity = "the node has no address any more", nodev1.Severity_SEVERITY_WARNING
		}
		w.to.Record(&nodev1.Event{
			Type: AddressesChanged, Severity: severity, Message: message, Details: map[string]string{"before": before, "now": after},
		})
	}
	w.known, w.last = true, sorted
}
