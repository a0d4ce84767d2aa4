package service

import (
	"context"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/sdk/event"
)

type said chan string

func (s said) Ready()                 { s <- "ready" }
func (s said) Degraded(reason string) { s <- "degraded: " + reason }

// TestReport is about what a single member cannot be brought to: losing its leader and its quorum.
func TestReport(t *testing.T) {
	good := store.Status{MemberID: "1", LeaderID: "1"}
	status := event.New(good)
	said := make(said)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := &running{}
	ended := make(chan error, 1)
	go func() { ended <- r.report(ctx, status, said) }()
	for _, step := range []struct {
		status store.Status
		want   string
	}{
		{good, "ready"},
		{store.Status{MemberID: "1", NoQuorum: time.Now()}, "degraded: no leader"},
		{store.Status{MemberID: "1", LeaderID: "2", NoQuorum: time.Now()}, "degraded: no quorum: the store has a leader but makes no progress"},
		{good, "ready"},
	} {
		status.Set(step.status)
		select {
		case got := <-said:
			if got != step.want {
				t.Errorf("%q, want %q", got, step.want)
			}
		case <-ctx.Done():
			t.Fatalf("never said %q", step.want)
		}
	}
	status.Set(store.Status{MemberID: "1", LeaderID: "1", DatabaseSize: 1})
	if now, err := r.status.Wait(ctx, func(s *store.Status) bool { return s.DatabaseSize == 1 }); err != nil {
		t.Errorf("the status was not passed on: %v, %v", now, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
