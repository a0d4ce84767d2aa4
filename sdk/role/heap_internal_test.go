package role

import (
	"runtime/debug"
	"testing"
)

func TestTheHeapKeepsBelowTheMemoryOfTheInstance(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	boundHeap(0)
	if now := debug.SetMemoryLimit(-1); now != before {
		t.Errorf("nobody has said how much there is, and the limit is %d", now)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	boundHeap(1 << 30)
	if now := debug.SetMemoryLimit(-1); now != before {
		t.Errorf("GOMEMLIMIT is set, and the limit is %d in place of %d", now, before)
	}
	t.Setenv("GOMEMLIMIT", "")
	boundHeap(1 << 30)
	if now := debug.SetMemoryLimit(-1); now >= 1<<30 || now < 1<<29 {
		t.Errorf("of 1 GiB the limit is %d", now)
	}
}
