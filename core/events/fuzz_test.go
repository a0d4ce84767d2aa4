package events_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Whatever is in the files, the journal opens, reads in order, and goes on with a number that is not in use.
func FuzzFiles(f *testing.F) {
	head := `{"version":"reeve.events.v1","after":"0"}` + "\n"
	one := `{"sequence":"1","time":"2026-01-02T03:04:05Z","severity":"SEVERITY_INFO","type":"One","message":"m","details":{"a":"b"}}` + "\n"
	two := `{"sequence":"2","severity":2,"type":"Two"}` + "\n"
	for _, seed := range [][2]string{
		{"", ""},
		{head + one, head + two},
		{head + one + two[:10], ""},
		{"", head + one + two + `{"version":"reeve.events.v1","after":"2","ended":true}` + "\n"},
		{"\x00\xff\n\n", "not JSON\n" + one},
		{head, `{"version":"reeve.events.v2","after":"7"}` + "\n" + one},
		{head + two + one, head + `{"sequence":"9223372036854775807"}` + "\n"},
		{"", head + `{"sequence":"3","type":"\u001b[2J","time":"0001-01-01T00:00:00Z","severity":99,"more":{}}` + "\n"},
		{"", `{"version":"reeve.events.v1","after":"18446744073709551615","ended":true}`},
		{head + one, `{"version":"reeve.events.v1","after":"1","ended":true}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, before, now []byte) {
		dir, err := os.MkdirTemp("", "reeve-events-")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		path := filepath.Join(dir, "events.jsonl")
		for name, content := range map[string][]byte{path + ".1": before, path: now} {
			if len(content) == 0 {
				continue
			}
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j, err := events.Open(events.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		old := readAll(t, j, events.Query{})
		for n := range uint32(3) {
			if tail := readAll(t, j, events.Query{Tail: n + 1}); len(tail) > int(n+1) {
				t.Errorf("a tail of %d has %d events", n+1, len(tail))
			}
		}
		j.Record(&nodev1.Event{Type: "New"})
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := j.Run(ended); err != nil {
			t.Fatal(err)
		}
		if j, err = events.Open(events.Config{Path: path}); err != nil {
			t.Fatal(err)
		}
		all := readAll(t, j, events.Query{})
		if len(all) == 0 || all[len(all)-1].GetType() != "New" {
			t.Fatalf("the new event is not the last of %v", all)
		}
		if len(old) > 0 && old[len(old)-1].GetSequence() >= all[len(all)-1].GetSequence() {
			t.Errorf("the new event has number %d after %d", all[len(all)-1].GetSequence(), old[len(old)-1].GetSequence())
		}
	})
}

func readAll(t *testing.T, j *events.Journal, query events.Query) []*nodev1.Event {
	reader := j.Read(query)
	defer reader.Close()
	var all []*nodev1.Event
	for {
		next, err := reader.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range next {
			if len(all) > 0 && e.GetSequence() <= all[len(all)-1].GetSequence() {
				t.Fatalf("%d comes after %d", e.GetSequence(), all[len(all)-1].GetSequence())
			}
			if !limits.Line(e.GetType()) || !limits.Line(e.GetMessage()) {
				t.Errorf("read: %q", e)
			}
			all = append(all, e)
		}
	}
}
