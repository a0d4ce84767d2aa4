package limits_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"http": true, "två ord": true, strings.Repeat("x", limits.Name): true,
		"": false, strings.Repeat("x", limits.Name+1): false, "a\nb": false, "\x1b[2J": false, "\xff": false, "a\u202eb": false, "a\u00a0b": false,
	} {
		if got := limits.NameOK(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for size, want := range []string{"", "a", "a", "aö", "aöz", "aöz"} {
		if got := limits.Cut("aöz", size); got != want || !utf8.ValidString(got) {
			t.Errorf("%d: %q, want %q", size, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "två ord": "två ord", "a\x00\x1b[2J\u202eb\xff\n": `a\x00\x1b[2J\u202eb\xff\n`, "\ufffd": "\ufffd", `"\`: `"\`, "\u00a0": `\u00a0`,
	} {
		if got := limits.Clean(text); got != want || !limits.Line(got) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// All that a role may state at once fits into a report several times, so that the values of a few roles never have to be left out.
func TestAStatusFitsIntoAReport(t *testing.T) {
	status := &rolev1.WatchResponse{Reason: strings.Repeat("x", limits.Reason), Values: map[string]string{}}
	for range limits.Endpoints {
		status.Endpoints = append(status.Endpoints, &rolev1.Endpoint{Name: strings.Repeat("x", limits.Name), Address: strings.Repeat("x", limits.Address)})
	}
	for n := range limits.Values {
		status.Values[strings.Repeat("x", limits.Name-1)+string(rune('!'+n))] = strings.Repeat("x", limits.Value)
	}
	if size := proto.Size(status); 3*size > limits.Report {
		t.Errorf("a status may have %d bytes, a report %d", size, limits.Report)
	}
}
