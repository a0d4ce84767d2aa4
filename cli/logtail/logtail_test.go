package logtail_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/cli/logtail"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSeen(t *testing.T) {
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprint(i))
	}
	tests := []struct {
		name       string
		seen, kept []string
		want       int
		lost       bool
	}{
		{name: "nothing was seen", kept: []string{"a", "b"}},
		{name: "nothing is kept", seen: []string{"a"}, lost: true},
		{name: "nothing is new", seen: []string{"a", "b"}, kept: []string{"a", "b"}, want: 2},
		{name: "something is new", seen: []string{"a", "b"}, kept: []string{"a", "b", "c"}, want: 2},
		{name: "only the end was seen", seen: []string{"b"}, kept: []string{"a", "b", "c"}, want: 2},
		{name: "only the end is kept", seen: []string{"a", "b", "c"}, kept: []string{"b", "c", "d"}, want: 2},
		{name: "all is new", seen: []string{"a", "b"}, kept: []string{"c"}, lost: true},
		{name: "the last of several places", seen: []string{"x", "x"}, kept: []string{"x", "x", "x", "y"}, want: 3},
		{name: "a line that is there again", seen: []string{"a", "x", "b"}, kept: []string{"a", "x", "b", "c", "x", "d"}, want: 3},
		{name: "more than is remembered", seen: many[:400], kept: many, want: 400},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			kept := at(test.seen).NewKept()
			for _, line := range test.kept {
				kept.Add([]byte(line))
			}
			got, found := kept.Seen()
			if got != test.want || found == test.lost {
				t.Errorf("%d of %d lines were seen (found: %t), want %d", got, kept.Len(), found, test.want)
			}
		})
	}
}

func at(seen []string) *logtail.Place {
	place := logtail.NewPlace()
	for _, line := range seen {
		place.See([]byte(line + "\n"))
	}
	return place
}

func TestSame(t *testing.T) {
	kept := logtail.NewPlace().NewKept()
	kept.Add([]byte("a\n"))
	if !kept.Same(0, []byte("a")) || kept.Same(0, []byte("b\n")) {
		t.Error("lines are not told from each other")
	}
}

// TestGoesOn follows a log whose lines are all different, which is lost at any moment and of which any part is still kept: what is shown is the whole log as
// far as that is possible, each line once.
func TestGoesOn(t *testing.T) {
	const length = 130
	var lines []string
	for i := range length {
		lines = append(lines, fmt.Sprint(i))
	}
	for seen := range length + 1 {
		for from := range length + 1 {
			kept := at(lines[:seen]).NewKept()
			for _, line := range lines[from:] {
				kept.Add([]byte(line))
			}
			skip, found := kept.Seen()
			if lost := from >= seen && seen > 0; lost == found {
				t.Fatalf("found %t where %d lines were seen and those from %d on are kept", found, seen, from)
			}
			shown := append(slices.Clone(lines[:seen]), lines[from+skip:]...)
			want := append(slices.Clone(lines[:seen]), lines[max(from, seen):]...)
			if !slices.Equal(shown, want) {
				t.Fatalf("shown is %s where %d lines were seen and those from %d on are kept", strings.Join(shown, " "), seen, from)
			}
		}
	}
}
