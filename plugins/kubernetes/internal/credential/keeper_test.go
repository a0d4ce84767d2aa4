package credential

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/sdk/event"
)

// TestDue: credentials are due when half of their time is over, or the authorities are others than those they came with.
func TestDue(t *testing.T) { synctest.Test(t, testDue) }

func testDue(t *testing.T) {
	var told event.Value[uint64]
	k := Keeper{Told: &told}
	due := func(got Granted) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return k.awaitDue(ctx, got)
	}
	later := time.Now().Add(time.Hour)
	if due(Granted{Again: later, Revision: 7}) {
		t.Error("good ones are due while nothing is known of the authorities")
	}
	if !k.awaitDue(t.Context(), Granted{Again: time.Now(), Revision: 7}) {
		t.Error("old ones are not due")
	}
	told.Set(7)
	if due(Granted{Again: later, Revision: 7}) {
		t.Error("good ones are due")
	}
	if due(Granted{Again: later, Revision: 8}) {
		t.Error("those of newer authorities than the node was told of are due")
	}
	waited := make(chan bool)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() { waited <- k.awaitDue(ctx, Granted{Again: later, Revision: 7}) }()
	told.Set(8)
	if !<-waited {
		t.Error("those of other authorities are not due")
	}
}

// host notes what it is told.
type host struct {
	mu   sync.Mutex
	said []string
}

func (h *host) say(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, what)
}

func (h *host) Degraded(reason string)      { h.say("degraded: " + reason) }
func (h *host) Logger() hclog.Logger        { return hclog.NewNullLogger() }
func (h *host) SetValue(name, value string) { h.say(name + " " + value) }

// TestRenewal: what programs read only when they start is told once the newest is there, and only then the node says that it works with it.
func TestRenewal(t *testing.T) { synctest.Test(t, testRenewal) }

func testRenewal(t *testing.T) {
	var told event.Value[uint64]
	h := &host{}
	later := time.Now().Add(time.Hour)
	answers := make(chan Granted, 4)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	k := Keeper{
		Host: h, Told: &told,
		Fetch: func(ctx context.Context) (Granted, error) {
			select {
			case got := <-answers:
				if got.Revision == 0 {
					return Granted{}, errors.New("nobody answers")
				}
				h.say(fmt.Sprint("fetched ", got.Revision))
				return got, nil
			case <-ctx.Done():
				return Granted{}, ctx.Err()
			}
		},
		StartAnew: func(_ context.Context, revision uint64) bool {
			h.say(fmt.Sprint("anew ", revision))
			if revision == 9 {
				cancel()
			}
			return revision != 9
		},
	}
	answers <- Granted{}
	answers <- Granted{Again: later, Revision: 6, AtStart: "six"}
	got, ok := k.First(ctx)
	if !ok {
		t.Fatal("there are none")
	}
	told.Set(8)
	answers <- Granted{Again: later, Revision: 7, AtStart: "seven"} // of an instance that is behind
	answers <- Granted{Again: time.Now(), Revision: 8, AtStart: "eight"}
	answers <- Granted{Again: later, Revision: 9, AtStart: "nine"} // of one that is before the one that told
	k.Renew(ctx, got)
	want := []string{
		"degraded: there are no certificates yet: nobody answers", "fetched 6", "trust-revision 6",
		"fetched 7", "fetched 8", "anew 8", "trust-revision 8", "fetched 9", "anew 9",
	}
	if !slices.Equal(h.said, want) {
		t.Errorf("it went %q, want %q", h.said, want)
	}
}
