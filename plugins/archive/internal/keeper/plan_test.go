package keeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/archive/internal/curator"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// named is the snapshot of a number, which is as old as its hour says.
func named(number uint64, hour int) snapshot.Name {
	return snapshot.Name{Number: number, Asked: time.Date(2026, 11, 28, hour, 0, 0, 0, time.UTC)}
}

// TestPlan holds what is copied and removed, by numbers and not by times.
func TestPlan(t *testing.T) {
	of := func(numbers ...uint64) (had []curator.Snapshot) {
		for _, number := range numbers {
			had = append(had, curator.Snapshot{Name: named(number, 0), Bytes: 100})
		}
		return had
	}
	copies := func(numbers ...uint64) map[snapshot.Name]int64 {
		there := make(map[snapshot.Name]int64)
		for _, number := range numbers {
			there[named(number, 0)] = 100
		}
		return there
	}
	for _, c := range []struct {
		had             []curator.Snapshot
		copies          map[snapshot.Name]int64
		keep            int
		missing, remove string
		behind          bool
	}{
		{of(3, 2, 1), nil, 0, "[3 2 1]", "[]", false},
		{of(3, 2, 1), nil, 2, "[3 2]", "[]", false},
		{of(1, 2, 3), copies(2), 30, "[3 1]", "[]", false},
		{of(3, 2, 1), copies(3, 2, 1), 30, "[]", "[]", false},
		{of(10), copies(9, 8), 2, "[10]", "[]", false},
		{of(10), copies(10, 9, 8), 2, "[]", "[8]", false},
		{nil, copies(4, 3, 2), 1, "[]", "[3 2]", false},
		{nil, copies(4, 3, 2), 0, "[]", "[]", false},
		// The copies are newer than what the curator has: the cluster was restored.
		{of(1), copies(9, 8), 3, "[1]", "[]", false},
		{of(2, 1), copies(9, 8), 2, "[]", "[]", true},
		{of(2, 1), copies(9, 8), 0, "[2 1]", "[]", false},
	} {
		wanted, remove := []uint64{}, []uint64{}
		for _, one := range missing(c.had, c.copies, c.keep) {
			wanted = append(wanted, one.Number)
		}
		for _, one := range tooMany(c.copies, c.keep) {
			remove = append(remove, one.Number)
		}
		if _, higher := behind(c.had, c.copies, c.keep); fmt.Sprint(wanted) != c.missing || fmt.Sprint(remove) != c.remove || higher > 0 != c.behind {
			t.Errorf("%v with %v, keep %d: %v is missing, %v is too many, behind: %t; want %s, %s, %t", c.had, c.copies, c.keep, wanted, remove, higher > 0, c.missing, c.remove, c.behind)
		}
	}
	// The clock was wrong: the number decides.
	there := map[snapshot.Name]int64{named(1, 23): 100, named(2, 5): 100}
	if got := tooMany(there, 1); len(got) != 1 || got[0].Number != 1 {
		t.Errorf("%v goes", got)
	}
}
