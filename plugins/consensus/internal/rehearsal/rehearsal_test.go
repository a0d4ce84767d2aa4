package rehearsal_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/rehearsal"
)

func TestMain(m *testing.M) {
	if rehearsal.Is(os.Args) {
		os.Exit(rehearsal.Main())
	}
	os.Exit(m.Run())
}

// What is no snapshot is refused with its reason, by a process that ends: the one that asked goes on. What a good one holds is tested where there are stores (internal/store).
func TestRefused(t *testing.T) {
	plan := rehearsal.Plan{Directory: t.TempDir(), Memory: 1 << 30, Within: 5 * time.Minute}
	refuse := func(reason string) {
		t.Helper()
		if _, err := rehearsal.Run(t.Context(), plan); !errors.Is(err, rehearsal.ErrFailed) || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v; want %q", err, reason)
		}
	}
	refuse("no such file")
	if err := os.WriteFile(rehearsal.Path(plan.Directory), make([]byte, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse("restore it")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rehearsal.Run(gone, plan); !errors.Is(err, context.Canceled) {
		t.Errorf("for somebody who has gone: %v", err)
	}
}

// TestTooSlow holds that a rehearsal which does not come to an end is given up, and that its process ends.
func TestTooSlow(t *testing.T) {
	plan := rehearsal.Plan{Directory: t.TempDir(), Memory: 1 << 30, Within: 500 * time.Millisecond}
	// Whoever opens this waits for somebody who writes, for good.
	if err := unix.Mkfifo(rehearsal.Path(plan.Directory), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rehearsal.Run(t.Context(), plan); !errors.Is(err, rehearsal.ErrFailed) || !strings.Contains(err.Error(), "was not over within 500ms") {
		t.Error(err)
	}
}
