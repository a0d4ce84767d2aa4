package redact_test

import (
	"slices"
	"testing"

	"github.com/reeveproject/reeve/cli/redact"
)

// TestChanges compares configurations. Values are shown only where that is asked for.
func TestChanges(t *testing.T) {
	const before = `{"same": 1, "name": "secret", "list": [1, 2], "a/b~": true, "gone": null, "deep": {"x": 1}}`
	const after = `{"same": 1, "name": "other", "list": [1], "a/b~": false, "deep": {"x": {}}, "new": "n"}`
	for _, test := range []struct {
		before, after string
		show          bool
		want          []redact.Change
	}{
		{before, before, true, nil},
		{`{"a":1}`, ` { "a" : 1 } `, true, nil},
		{"", "", true, nil},
		{before, after, false, []redact.Change{
			{"/a~1b~0", "<bool>", "<bool>"}, {"/deep/x", "<number>", "{}"}, {"/gone", "null", ""}, {"/list/1", "<number>", ""},
			{"/name", "<string, 6 bytes>", "<string, 5 bytes>"}, {"/new", "", "<string, 1 bytes>"},
		}},
		{before, after, true, []redact.Change{
			{"/a~1b~0", "true", "false"}, {"/deep/x", "1", "{}"}, {"/gone", "null", ""}, {"/list/1", "2", ""}, {"/name", `"secret"`, `"other"`}, {"/new", "", `"n"`},
		}},
		{`{"token": "abcdef"}`, "", false, []redact.Change{{"/token", "<string, 6 bytes>", ""}}},
		{"", "{}", false, []redact.Change{{"/", "", "{}"}}},
		{"not JSON", "", false, []redact.Change{{"/", "<8 bytes that are not JSON>", ""}}},
		{`{"n": 12345678901234567890}`, `{"n": 12345678901234567891}`, true, []redact.Change{{"/n", "12345678901234567890", "12345678901234567891"}}},
	} {
		if got := redact.Changes(test.before, test.after, test.show); !slices.Equal(got, test.want) {
			t.Errorf("%s and %s differ in %q, want %q", test.before, test.after, got, test.want)
		}
	}
}
