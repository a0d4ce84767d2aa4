package access

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Starts are in order whatever the clock does.
func TestNextStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "start.json")
	clock := time.Unix(1_800_000_000, 5)
	last := time.Time{}
	for _, now := range []time.Time{clock, clock, clock.Add(-240 * time.Hour), clock.Add(time.Second), {}} {
		start, err := NextStart(path, now)
		if err != nil {
			t.Fatal(err)
		}
		if !start.After(last) {
			t.Errorf("at %s the start %s is not after %s", now, start, last)
		}
		last = start
	}
	for _, content := range []string{"", "{", `{"version":2,"start":9223372036854775807}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if start, err := NextStart(path, clock); err != nil || !start.Equal(clock) {
			t.Errorf("%q: %s, %v", content, start, err)
		}
	}
	if start, err := NextStart(filepath.Join(path, "nowhere"), clock); err == nil || !start.Equal(clock) {
		t.Errorf("where nothing can be kept: %s, %v", start, err)
	}
}
