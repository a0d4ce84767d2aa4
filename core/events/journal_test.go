package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/proto/limits"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func TestEventsAreKeptInOrder(t *testing.T) {
	j := run(t, newPath(t), 0)
	began := time.Now().Add(-time.Second)
	j.Record(nil)
	j.Record(&nodev1.Event{
		Sequence: 99, Type: "RoleFailed", Severity: nodev1.Severity_SEVERITY_ERROR, Message: "role x failed", Role: "x", InstanceId: "reeve-1/x/3",
		Details: map[string]string{"exit": "signal 9"},
	})
	j.note("Second")
	j.sync()
	for range 2 { // from memory, then from the file, by a core that came later
		all := j.read(events.Query{})
		if len(all) != 2 || all[0].GetSequence() != 1 || all[1].GetSequence() != 2 {
			t.Fatalf("kept: %v", all)
		}
		first := all[0]
		if first.GetType() != "RoleFailed" || first.GetSeverity() != nodev1.Severity_SEVERITY_ERROR || first.GetMessage() != "role x failed" ||
			first.GetRole() != "x" || first.GetInstanceId() != "reeve-1/x/3" || first.GetDetails()["exit"] != "signal 9" {
			t.Errorf("the first: %v", first)
		}
		if at := first.GetTime().AsTime(); at.Before(began) || at.After(time.Now()) {
			t.Errorf("its time: %v", at)
		}
		if all[1].GetSeverity() != nodev1.Severity_SEVERITY_INFO {
			t.Errorf("one without a severity has %v", all[1].GetSeverity())
		}
		j.stop()
		j = run(t, j.path, 0)
	}
	info, err := os.Stat(j.path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	content, err := os.ReadFile(j.path)
	if err != nil || !strings.HasPrefix(string(content), `{"version":"reeve.events.v1","after":"0"}`+"\n"+`{"sequence":"1",`) {
		t.Errorf("the file is %q, %v", content, err)
	}
}

func TestTextsAreBounded(t *testing.T) {
	j := run(t, newPath(t), 0)
	hostile := "a\n\x1b[2J\u202e\xff" + strings.Repeat("\x00", 1<<20)
	given := &nodev1.Event{Type: hostile, Message: hostile, Role: hostile, InstanceId: hostile, Details: map[string]string{hostile: hostile}}
	for n := range 100 {
		given.Details[fmt.Sprintf("%03d", n)] = strings.Repeat("x", 1000)
	}
	j.Record(given)
	j.stop()
	for _, e := range open(t, j.path, 0).read(events.Query{}) {
		size := 0
		for _, text := range []string{e.GetType(), e.GetMessage(), e.GetRole(), e.GetInstanceId()} {
			if !limits.Line(text) || text == "" {
				t.Errorf("%.40q is kept", text)
			}
			size += len(text)
		}
		for name, value := range e.GetDetails() {
			if !limits.Line(name) || !limits.Line(value) {
				t.Errorf("%.40q: %.40q is kept", name, value)
			}
			size += len(name) + len(value)
		}
		if size > 20<<10 {
			t.Errorf("%d bytes are kept", size)
		}
		if out := e.GetDetails()["details_left_out"]; out == "" || out == "0" {
			t.Errorf("%q details are said to be left out, of %d", out, len(e.GetDetails()))
		}
	}
	if len(given.GetDetails()) != 101 || given.GetSequence() != 0 {
		t.Error("what was given was changed")
	}
}

func TestNumbersGrowOverRestarts(t *testing.T) {
	path := newPath(t)
	var last uint64
	for round := range 5 {
		j := run(t, path, 0)
		if all := j.read(events.Query{}); len(all) != round {
			t.Errorf("round %d begins with %d events", round, len(all))
		}
		j.note("Once")
		j.sync()
		all := j.read(events.Query{After: last})
		if len(all) != 1 || all[0].GetSequence() <= last {
			t.Fatalf("round %d: %v after %d", round, all, last)
		}
		last = all[0].GetSequence()
		j.stop()
	}
}

// crash returns a journal for what a core left that was killed. change is made to the file first.
func (j *journal) crash(change func([]byte) []byte) *journal {
	j.t.Helper()
	path := newPath(j.t)
	for _, suffix := range []string{"", ".1"} {
		content, err := os.ReadFile(j.path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && suffix == "" {
			content = change(content)
		}
		if err == nil {
			err = os.WriteFile(path+suffix, content, 0o600)
		}
		if err != nil {
			j.t.Fatal(err)
		}
	}
	return run(j.t, path, 0)
}

func same(content []byte) []byte { return content }

// A number that was shown is never given again, whatever became of the end of the file.
func TestNumbersAreNotUsedAgainAfterACrash(t *testing.T) {
	j := run(t, newPath(t), 0)
	for range 10 {
		j.note("Before")
	}
	j.sync()
	for name, change := range inorder.Of(map[string]func([]byte) []byte{
		"all is there":             same,
		"the last line is torn":    func(c []byte) []byte { return c[:len(c)-20] },
		"the last line has no end": func(c []byte) []byte { return c[:len(c)-1] },
		"garbage at the end":       func(c []byte) []byte { return append(c, "\x00\x00{\"sequence\":\"5"...) },
		"zeros at the end":         func(c []byte) []byte { return append(c, make([]byte, 300<<10)...) },
		"only the first line":      func(c []byte) []byte { return c[:bytes.IndexByte(c, '\n')+1] },
	}) {
		t.Run(name, func(t *testing.T) {
			j.t = t
			after := j.crash(change)
			after.note("After")
			after.sync()
			kept, _ := after.scan(events.Query{})
			last := kept[len(kept)-1]
			if last.GetType() != "After" || last.GetSequence() <= 10 {
				t.Errorf("the first event of the core that follows is %v", last)
			}
			if len(kept) < 9 && name != "only the first line" {
				t.Errorf("of ten events %d are kept", len(kept)-1)
			}
			after.stop()
			// What was torn does not swallow what came later.
			again := open(t, after.path, 0)
			if kept, _ := again.scan(events.Query{Tail: 1}); kinds(kept) != "After" {
				t.Errorf("the next core reads %q", kinds(kept))
			}
		})
	}
	j.t = t
}

// What a core shows is on disk, or so is what says that the next core may not give its number again.
func TestACoreThatWritesNothing(t *testing.T) {
	j := run(t, newPath(t), 0)
	j.note("First")
	j.stop()
	second := open(t, j.path, 0)
	second.note("Second")
	shown := second.read(events.Query{})
	if kinds(shown) != "First" { // a core that has not written yet could show numbers that the next one uses
		t.Errorf("shown: %v", shown)
	}
	third := run(t, j.path, 0)
	third.note("Third")
	third.sync()
	kept := third.read(events.Query{})
	if kinds(kept) != "First Third" {
		t.Errorf("kept: %v", kept)
	}
}

// A core of an earlier version wrote a line when it ended.
func TestAFileOfAnEarlierVersion(t *testing.T) {
	path := newPath(t)
	content := `{"version":"reeve.events.v1","after":"0"}` + "\n" + `{"sequence":"1","type":"Old"}` + "\n" + `{"version":"reeve.events.v1","after":"7","ended":true}` + "\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	j := run(t, path, 0)
	j.note("New")
	j.sync()
	if kept := j.read(events.Query{}); kinds(kept) != "Old New" || kept[1].GetSequence() <= 7 {
		t.Errorf("kept: %v", kept)
	}
	if kept := j.read(events.Query{Tail: 2}); kinds(kept) != "Old New" {
		t.Errorf("the last two: %v", kept)
	}
}

func TestFilesArePutAside(t *testing.T) {
	const maxBytes = 20_000
	j := run(t, newPath(t), maxBytes)
	for n := range 1000 {
		j.note(fmt.Sprint("Event", n))
		if n%10 == 0 {
			j.sync() // or all might be one group
		}
	}
	j.sync()
	var size int64
	for _, path := range []string{j.path, j.path + ".1"} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if size += info.Size(); info.Size() > maxBytes {
			t.Errorf("%s has %d bytes", path, info.Size())
		}
		content, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(content), `{"version":"reeve.events.v1"`) {
			t.Errorf("%s begins with %.60q, %v", path, content, err)
		}
	}
	j.stop()
	j = run(t, j.path, maxBytes)
	kept := j.read(events.Query{})
	if len(kept) < 100 || len(kept) > 900 || kept[len(kept)-1].GetSequence() != 1000 {
		t.Fatalf("%d events are kept, up to %v", len(kept), kept[len(kept)-1])
	}
	for i, e := range kept {
		if want := 1000 - uint64(len(kept)) + 1 + uint64(i); e.GetSequence() != want || e.GetType() != fmt.Sprint("Event", want-1) {
			t.Fatalf("event %d is %v", want, e)
		}
	}
	// Of what is gone, nothing comes; what comes is the oldest that is kept.
	if got := j.read(events.Query{After: 1}); numbers(got) != numbers(kept) {
		t.Errorf("after an event that is gone there are %d, of %d", len(got), len(kept))
	}
	first := kept[0].GetSequence()
	for _, after := range []uint64{first, first + 1, first + 50, first + 133, 998, 999, 1000, 1001, 1 << 63} {
		got := j.read(events.Query{After: after})
		if want := 1000 - min(after, 1000); uint64(len(got)) != want || want > 0 && got[0].GetSequence() != after+1 {
			t.Errorf("after %d there are %d, want %d", after, len(got), want)
		}
	}
	for _, tail := range []int{1, 2, 50, 99, 100, len(kept) - 1, len(kept), len(kept) + 1, 1 << 30} {
		got := j.read(events.Query{Tail: uint32(tail)})
		if want := min(tail, len(kept)); len(got) != want || got[len(got)-1].GetSequence() != 1000 {
			t.Errorf("a tail of %d has %d events, want %d", tail, len(got), want)
		}
	}
	if got := j.read(events.Query{After: 995, Tail: 3}); numbers(got) != "998 999 1000" {
		t.Errorf("the last 3 after 995: %s", numbers(got))
	}
	if got := j.read(events.Query{After: 998, Tail: 3}); numbers(got) != "999 1000" {
		t.Errorf("the last 3 after 998: %s", numbers(got))
	}
	// The file before alone still says where to go on.
	j.stop()
	if err := os.Remove(j.path); err != nil {
		t.Fatal(err)
	}
	j = run(t, j.path, maxBytes)
	j.note("Next")
	j.sync()
	before := kept[0].GetSequence()
	kept = j.read(events.Query{})
	if last := kept[len(kept)-1]; kept[0].GetSequence() != before || last.GetType() != "Next" || last.GetSequence() < kept[len(kept)-2].GetSequence()+1000 {
		t.Errorf("without the newer file: %v", last)
	}
}

func TestCorruptLinesAreSkipped(t *testing.T) {
	j := run(t, newPath(t), 0)
	for n := range 5 {
		j.note(fmt.Sprint("Event", n))
	}
	j.sync()
	after := j.crash(func(content []byte) []byte {
		lines := bytes.SplitAfter(content, []byte{'\n'})
		lines[2] = []byte("not JSON\n")
		lines[3] = []byte(strings.Repeat("z", 1<<20) + "\n" + `{"sequence":"4611686018427387903","type":"Later"}` + "\n")
		lines[4] = append(lines[4], `{"type":"Unnumbered"}`+"\n"+`{"sequence":"2","type":"Twice"}`+"\n"...)
		return bytes.Join(lines, nil)
	})
	kept, corrupt := after.scan(events.Query{})
	if kinds(kept) != "Event0 Event3 Event4" || corrupt != 4 {
		t.Errorf("kept: %s, and %d lines are corrupt", kinds(kept), corrupt)
	}
	if kept, _ := after.scan(events.Query{Tail: 2}); kinds(kept) != "Event3 Event4" {
		t.Errorf("the last two: %s", kinds(kept))
	}
}

func TestAnotherVersionIsPutAside(t *testing.T) {
	path := newPath(t)
	future := `{"version":"reeve.events.v2","after":"0"}` + "\n" + `{"sequence":"3","type":"Future"}` + "\n" + `{"version":"reeve.events.v2","after":"41"}` + "\n"
	if err := os.WriteFile(path, []byte(future), 0o600); err != nil {
		t.Fatal(err)
	}
	j := run(t, path, 0)
	j.note("Now")
	j.sync()
	kept, corrupt := j.scan(events.Query{})
	if kinds(kept) != "Now" || kept[0].GetSequence() <= 41 || corrupt != 1 {
		t.Errorf("kept: %v, %d", kept, corrupt)
	}
	if content, err := os.ReadFile(path + ".1"); err != nil || string(content) != future {
		t.Errorf("what was put aside is %q, %v", content, err)
	}
}

func TestOpenFailsByName(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		for _, suffix := range []string{"", ".1"} {
			path := filepath.Join(dir, name+suffix+"x")
			if err := make(path + suffix); err != nil {
				t.Fatal(err)
			}
			if _, err := events.Open(events.Config{Path: path}); err == nil || !strings.Contains(err.Error(), path+suffix) {
				t.Errorf("%s: %v", name+suffix, err)
			}
		}
	}
}

func TestManyRecordAtOnce(t *testing.T) {
	j := run(t, newPath(t), 100_000)
	const writers, each = 8, 500
	reader := j.Read(events.Query{Follow: true})
	defer reader.Close()
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range each {
				j.Record(&nodev1.Event{Type: fmt.Sprint("Writer", w), Message: fmt.Sprint(n)})
			}
		})
	}
	writing.Wait()
	j.note("End")
	// Each writer's events are in its order. Some may be gone, or dropped if the disk was slow.
	seen := map[string]int{}
	var last uint64
	for {
		next, err := reader.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range next {
			if e.GetSequence() <= last {
				t.Fatalf("%d comes after %d", e.GetSequence(), last)
			}
			last = e.GetSequence()
			if e.GetType() == "End" {
				return
			}
			var n int
			if _, err := fmt.Sscan(e.GetMessage(), &n); err != nil && e.GetType() != events.EventsDropped {
				t.Fatal(err)
			}
			if before, ok := seen[e.GetType()]; ok && n <= before && e.GetType() != events.EventsDropped {
				t.Fatalf("%s: %d comes after %d", e.GetType(), n, before)
			}
			seen[e.GetType()] = n
		}
	}
}

func TestAReaderEndsWithItsContext(t *testing.T) {
	j := open(t, newPath(t), 0)
	reader := j.Read(events.Query{Follow: true})
	defer reader.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := reader.Next(ctx)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	if _, err := j.Read(events.Query{}).Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("an empty journal: %v", err)
	}
}
