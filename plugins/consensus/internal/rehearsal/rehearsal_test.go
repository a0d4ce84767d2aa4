package rehearsal_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

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
