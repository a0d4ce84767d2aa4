package snapshot_test

import (
	"testing"
	"time"

	"github.com/reeveproject/reeve/proto/snapshot"
)

func TestName(t *testing.T) {
	name := snapshot.Name{Asked: time.Date(2026, 11, 28, 18, 0, 0, 0, time.UTC), Number: 42}
	if got := name.String(); got != "20261128T180000Z-42" {
		t.Errorf("got %s", got)
	}
	if got, ok := snapshot.ParseName(name.String()); !ok || !got.Asked.Equal(name.Asked) || got.Number != name.Number {
		t.Errorf("read back: %v, %t", got, ok)
	}
	for _, none := range []string{
		"", "20261128T180000Z", "20261128T180000Z-0", "20261128T180000Z-01", "20261328T180000Z-1", "20261128T180000Z-1.snapshot", "../20261128T180000Z-1",
		"20261128T180000Z-1\n", "20261128T180000Z-99999999999999999999", "20261128T180000-1",
	} {
		if got, ok := snapshot.ParseName(none); ok {
			t.Errorf("%q is taken for %v", none, got)
		}
	}
}
