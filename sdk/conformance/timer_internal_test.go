package conformance

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTimer holds that what a process waits for a processor is added to the time that it has, and that a process which always wants one does not have time for ever.
func TestTimer(t *testing.T) {
	for _, test := range []struct {
		name string
		// waited of so many tenths of the time is what the process waits for a processor.
		waited time.Duration
		want   time.Duration
	}{
		{"a process that waits for nothing", 0, 5 * time.Second},
		{"a busy machine", 5, 9843750 * time.Microsecond}, // 5 s, and 2.5 s, and 1.25 s, and so on
		{"a process that never rests", 10, 30 * time.Second},
		{"threads that never rest", 40, 30 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				timer := newTimer(5*time.Second, func() time.Duration { return time.Since(began) * test.waited / 10 })
				for <-timer.C; !timer.over(); <-timer.C {
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("it is over after %s, want %s", took, test.want)
				}
			})
		})
	}
}
