package page_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/page"
)

func TestPagesAreReadAsWritten(t *testing.T) {
	text := strings.Join([]string{
		"# A page", "", "Text with `reeve x`.", "", "```console", "$ one | two  # a remark", "out 1", "", "# three", "```", "",
		"<!-- test: event it-rains -->", "```console", "Membership  Foreign", "```", "- a list", "", "  ```console", "  $ four \\", "    and on", "  ```", "", "```text", "$ no command", "```", "",
	}, "\n")
	got, err := page.Parse(text)
	want := []page.Part{
		{Kind: page.Command, Line: 6, Block: 1, Text: "one | two", Shown: []string{"out 1", ""}},
		{Kind: page.Command, Line: 9, Block: 1, Text: "three", Root: true},
		{Kind: page.Directive, Line: 12, Text: "event it-rains"},
		{Kind: page.Output, Line: 14, Block: 2, Shown: []string{"Membership  Foreign"}},
		{Kind: page.Command, Line: 19, Block: 3, Text: "four and on"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	for _, broken := range []string{"```console\n$ a\n", "```\n```\n", "```console\nout\n$ a\n```\n", "~~~\n$ a\n~~~\n", "text <!-- test: event x -->\n"} {
		if got, err := page.Parse(broken); err == nil {
			t.Errorf("%q is read as %+v", broken, got)
		}
	}
}

func TestOutputIsComparedByShape(t *testing.T) {
	got := "NAME   AGE\nfirst  12s\nsecond 3m  waits for reeve-0123 (number 9)\n"
	for _, like := range [][]string{{"NAME AGE", "first 5s"}, {"first 99s", "…", "second 4m waits for …"}, {"  second 1m waits for reeve-… (number 10)"}} {
		if line := page.Unlike(like, got); line != "" {
			t.Errorf("%q is not found", line)
		}
	}
	for _, other := range [][]string{{"first 5s", "NAME AGE"}, {"first"}, {"third …"}, {"second 4m waits for"}} {
		if line := page.Unlike(other, got); line == "" {
			t.Errorf("%q is found", other)
		}
	}
}

func TestEveryStepIsDone(t *testing.T) {
	text := strings.Join([]string{
		"<!-- test: event it-rains -->", "<!-- test: refused no -->", "```console", "$ one", "$ two", "```",
		"<!-- test: skip it takes a year -->", "```console", "$ three", "$ four", "```", "```console", "$ five", "```", "",
	}, "\n")
	parts, err := page.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p := page.Page{Name: "page", Parts: parts}
	var done []string
	p.Follow(t, func(step page.Step) { done = append(done, step.Verb+step.Rest+step.Part.Text+step.Expected.Refused) })
	if want := []string{"eventit-rainsevent it-rains", "oneno", "two", "five"}; !reflect.DeepEqual(done, want) {
		t.Errorf("%q is done, want %q", done, want)
	}
	if skipped := p.Skipped(); len(skipped) != 2 || !strings.Contains(skipped[1], "four (it takes a year)") {
		t.Errorf("%q is not run", skipped)
	}
}

func TestCommentsOfOneCommand(t *testing.T) {
	var e page.Expectation
	for _, wrong := range []string{"skip", "refused", "shows", "stays"} {
		if _, err := new(page.Expectation).Take(wrong); err == nil {
			t.Errorf("%q is taken, and says nothing", wrong)
		}
	}
	if taken, err := e.Take("repeat 3 nodes"); !taken || err != nil || !e.Repeat || e.Until != "3 nodes" {
		t.Errorf("%t, %v: %+v", taken, err, e)
	}
	if _, err := e.Take("refused no"); err == nil {
		t.Error("two comments are taken for one command")
	}
	if taken, err := e.Take("event it-rains"); taken || err != nil {
		t.Errorf("what happens between two commands is taken: %v", err)
	}
}
