package main

import (
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// TestRestoreLooksAtTheClock holds that a machine that does not know the time restores nothing, and that one whose clock is before the snapshot says so.
func TestRestoreLooksAtTheClock(t *testing.T) {
	taken := time.Date(2027, time.March, 1, 12, 0, 0, 0, time.UTC)
	at := func(now time.Time) *restoring {
		return &restoring{found: new(params.Found), now: func() time.Time { return now }}
	}
	if err := at(time.Unix(60, 0)).check(&snapshot.Header{Manifest: new(snapshot.Manifest)}); err == nil || !strings.Contains(err.Error(), "clock is wrong, it says 1970-01-01") {
		t.Errorf("in 1970: %v", err)
	}
	for now, want := range map[time.Time]string{
		taken.Add(time.Hour):      "1h0m0s ago",
		taken.Add(-3 * time.Hour): "3h0m0s after what this machine's clock says: look at the clocks of both",
	} {
		if got := at(now).age(taken); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
