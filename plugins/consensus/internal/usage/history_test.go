package usage_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// TestHistoryIsBoundedByItsChanges takes in changes without bytes: of a key that is no user's, of one key, and of two keys in turn. Half of as many as there may be are kept at least.
func TestHistoryIsBoundedByItsChanges(t *testing.T) {
	const one, other = "/reeve/users/ant/1", "/reeve/users/ant/2"
	for _, c := range []struct {
		keys    []string
		changes int
		want    int64
	}{
		{[]string{"/reeve/curator/nodes/1"}, 199_999, 0},
		{[]string{"/reeve/curator/nodes/1"}, 200_000, 100_000},
		{[]string{one}, 19_999, 0},
		{[]string{one}, 20_000, 10_000},
		{[]string{one}, 29_999, 10_000},
		{[]string{one}, 30_000, 20_000},
		{[]string{one, other}, 20_000, 0},
		{[]string{one, other}, 30_000, 14_142}, // two keys of 7,071 changes each
	} {
		if old, _ := usage.ChangesOf("ant", 0, slices.Repeat(c.keys, c.changes/len(c.keys)+1)[:c.changes]...); old != c.want {
			t.Errorf("after %d changes of %q history is old before revision %d, want %d", c.changes, c.keys, old, c.want)
		}
	}
}

// TestFormerValuesAreWalkedTo: for each former value of a key etcd walks those that are newer. Where each key has few, as in Kubernetes, that is little, however much history there is.
func TestFormerValuesAreWalkedTo(t *testing.T) {
	hot := slices.Repeat([]string{"/reeve/users/ant/hot"}, 15_000) // over both halves of history
	var many []string
	for n := range 15_000 {
		many = append(many, fmt.Sprintf("/reeve/users/ant/%04d", n%1000))
	}
	for name, c := range map[string]struct {
		user        string
		since       int64
		keys        []string
		least, most int64
	}{
		"one key":                    {"ant", 1, hot, 15_000 * 15_000 / 2, 15_000 * 15_000},
		"one key, lately":            {"ant", 14_901, hot, 100 * 100 / 2, 100 * 600},
		"many keys":                  {"ant", 1, many, 1000 * 15 * 15 / 2, 1000 * 15 * 16},
		"a key of another user":      {"bee", 1, hot, 0, 0},
		"a revision that is to come": {"ant", 15_002, hot, 0, 0},
	} {
		if _, walked := usage.ChangesOf(c.user, c.since, c.keys...); walked < c.least || walked > c.most {
			t.Errorf("%s: etcd walks %d revisions, want %d to %d", name, walked, c.least, c.most)
		}
	}
}
