package events_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/membership"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// list keeps what is recorded.
type list struct {
	mu  sync.Mutex
	all []*nodev1.Event
}

func (l *list) Record(e *nodev1.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

// told returns what was recorded since it was last asked: type, severity and details.
func (l *list) told() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var told []string
	for _, e := range l.all {
		var details []string
		for name, value := range e.GetDetails() {
			details = append(details, name+"="+value)
		}
		slices.Sort(details)
		told = append(told, fmt.Sprintf("%s %s %s", e.GetType(), strings.TrimPrefix(e.GetSeverity().String(), "SEVERITY_"), strings.Join(details, "; ")))
	}
	l.all = nil
	return told
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			recorded  list
			member    = event.New(membership.Status{State: membership.Unknown})
			store     event.Value[*consensusv1.StoreStatus]
			addresses event.Value[[]string]
		)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- events.Follow(ctx, &recorded, events.Sources{Version: "1.2.3", Membership: member, Store: &store, Addresses: &addresses, Sealed: notSealed})
		}()
		expect := func(when string, want ...string) {
			t.Helper()
			if got := recorded.told(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		expect("at the start", "CoreStarted INFO version=1.2.3")

		member.Set(membership.Status{State: membership.Split, Reason: "no contact yet"})
		expect("as every member starts", "MembershipChanged INFO from=Unknown; reason=no contact yet; to=Split")
		member.Set(membership.Status{State: membership.Split, Reason: "still no contact"})
		expect("another reason")
		member.Set(membership.Status{State: membership.Home, Reason: "member of the cluster"})
		expect("home", "MembershipChanged INFO from=Split; reason=member of the cluster; to=Home")
		member.Set(membership.Status{State: membership.Split, Reason: "lost"})
		expect("lost", "MembershipChanged WARNING from=Home; reason=lost; to=Split")

		addresses.Set([]string{"10.0.0.2", "10.0.0.1"})
		expect("the first addresses")
		addresses.Set([]string{"10.0.0.1", "10.0.0.2"})
		expect("another order")
		addresses.Set([]string{"10.0.0.3"})
		expect("other addresses", "AddressesChanged INFO before=10.0.0.1, 10.0.0.2; now=10.0.0.3")
		addresses.Set(nil)
		expect("none", "AddressesChanged WARNING before=10.0.0.3; now=")

		store.Set(nil)
		store.Set(&consensusv1.StoreStatus{Formed: true, Problem: "no leader"})
		time.Sleep(time.Second)
		store.Set(&consensusv1.StoreStatus{Formed: true})
		time.Sleep(time.Minute)
		expect("an election")
		for n := range 10 {
			store.Set(&consensusv1.StoreStatus{Formed: true, Problem: fmt.Sprintf("full: %d MiB", 64+n)})
			time.Sleep(700 * time.Millisecond)
		}
		expect("full", "StoreProblem ERROR problem=full: 68 MiB")
		store.Set(&consensusv1.StoreStatus{})
		time.Sleep(time.Minute)
		store.Set(nil)
		expect("its role is started anew")
		store.Set(&consensusv1.StoreStatus{Formed: true, Problem: "worse"})
		time.Sleep(time.Minute)
		expect("another problem", "StoreProblem ERROR problem=worse")
		store.Set(&consensusv1.StoreStatus{Formed: true})
		expect("recovered", "StoreRecovered INFO problem=worse")

		store.Set(&consensusv1.StoreStatus{Formed: true, Quorum: true, Problem: "that of c does not answer", Members: []*consensusv1.StoreMember{{Name: "c", Silent: true}}})
		time.Sleep(time.Minute)
		expect("a member is away", "StoreProblem WARNING problem=that of c does not answer")
		store.Set(&consensusv1.StoreStatus{Formed: true, Quorum: true})
		expect("it is back", "StoreRecovered INFO problem=that of c does not answer")

		member.Set(membership.Status{State: membership.Disowning, Reason: "removed"})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		expect("the end", "MembershipChanged ERROR from=Split; reason=removed; to=Disowning", "CoreStopping INFO ")
	})
}

func notSealed() bool { return false }
