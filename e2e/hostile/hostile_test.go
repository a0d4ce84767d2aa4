package hostile

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// TestHostileRoles performs every row, as root and as an ordinary user as far as the test's own user can, and writes the table.
func TestHostileRoles(t *testing.T) {
	outcomes := make(map[string]map[string]*Outcome)
	var mu sync.Mutex
	run := func(user *devcluster.User) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			s := set(t, user)
			mu.Lock()
			into := make(map[string]*Outcome)
			outcomes[s.user] = into
			mu.Unlock()
			s.start(t)
			s.perform(t, func(row Row, o *Outcome) {
				mu.Lock()
				defer mu.Unlock()
				into[row.ID] = o
			})
		}
	}
	t.Run("users", func(t *testing.T) {
		if isRoot() {
			t.Run("root", run(nil))
			// The gate runs the rows as root, whose roles are to be held to the most.
			if soak.Enabled {
				t.Run("ordinary user", run(ordinary))
			}
		} else {
			t.Run("ordinary user", run(nil))
		}
	})
	if os.Getenv(rowsVariable) != "" {
		t.Logf("the table is left as it is: %s has chosen some rows only", rowsVariable)
	} else if err := NewTable(outcomes).Write(suite.programs.Workspace, "hostile-roles"); err != nil {
		t.Error(err)
	}
	for user, rows := range outcomes {
		for _, id := range slices.Sorted(maps.Keys(rows)) {
			if o := rows[id]; o.Escaped() {
				t.Errorf("as %s %s escaped:\n\t%s", user, id, strings.Join(o.Escapes, "\n\t"))
			}
		}
		for _, row := range Rows() {
			if rows[row.ID] == nil && chosen(row) {
				t.Errorf("as %s %s was not performed", user, row.ID)
			}
		}
	}
}

// rowsVariable may have a regular expression for the IDs of the rows that are to be performed.
const rowsVariable = "HOSTILE_ROWS"

// chosen reports whether a row is to be performed: all are, unless the test was told otherwise.
func chosen(row Row) bool {
	return regexp.MustCompile(os.Getenv(rowsVariable)).MatchString(row.ID)
}

// perform performs all rows. Those that may cost the node its disk come last.
func (s *scene) perform(t *testing.T, done func(Row, *Outcome)) {
	began := time.Now()
	for _, group := range []struct {
		rows    []Row
		perform func(*testing.T, Row) *Outcome
	}{
		{keyRows, s.plain}, {socketRows, s.plain}, {fileRows, s.plain}, {processRows, s.plain}, {hostRows, s.plain}, {binaryRows, s.plain},
		{kernelRows, s.plain}, {lieRows, s.lie}, {exhaustRows, s.exhaust}, {useRows, s.use}, {clusterRows, s.besiege}, {outliveRows, s.outlive}, {diskRows, s.fill},
	} {
		for _, row := range group.rows {
			if !chosen(row) {
				continue
			}
			if s.ctx.Err() != nil {
				t.Fatalf("as %s there is no time left for %s: the time-out of go test is near", s.user, row.ID)
			}
			start := time.Now()
			o := group.perform(t, row)
			for _, need := range row.Needs {
				if s.missing[need] {
					o.Missing = append(o.Missing, need)
				}
			}
			s.outside(t, o)
			if s.ctx.Err() != nil {
				// What was cut short has neither held nor escaped.
				t.Fatalf("as %s the time ended during %s: the time-out of go test is near", s.user, row.ID)
			}
			done(row, o)
			t.Logf("%5.1fs %s %s: %s", time.Since(start).Seconds(), s.user, row.ID, o.Cell())
		}
		if !slices.ContainsFunc(group.rows, chosen) {
			continue
		}
		// What the victim itself sees, after every group.
		last := group.rows[len(group.rows)-1]
		o := &Outcome{}
		s.askVictim(t, o)
		for _, wrong := range o.Escapes {
			t.Errorf("as %s, after the group %q (last %s): %s", s.user, last.Group, last.ID, wrong)
		}
	}
	s.thorough(t)
	t.Logf("as %s all rows took %s", s.user, time.Since(began).Round(time.Second))
}
