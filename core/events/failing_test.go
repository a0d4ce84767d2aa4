package events_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/events"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// While the disk takes nothing, events wait, the oldest of too many go, and one event says how many.
func TestTheOldestAreDroppedWhileTheDiskTakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not-there-yet")
	j := run(t, filepath.Join(dir, "events.jsonl"), 0)
	const recorded = 5000
	for n := range recorded {
		j.note(fmt.Sprint("Event", n))
	}
	// Nothing that a later core could give again is shown: there is no file that says how far this one came.
	if shown := j.read(events.Query{}); len(shown) != 0 {
		t.Errorf("shown: %d", len(shown))
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j.sync()
	j.note("After")
	j.sync()
	j.stop()
	kept := open(t, j.path, 0).read(events.Query{})
	dropped := 0
	for i, e := range kept {
		switch e.GetType() {
		case events.EventsDropped:
			n, err := strconv.Atoi(e.GetDetails()["count"])
			if err != nil || dropped > 0 {
				t.Fatalf("dropped: %v, %v", e, err)
			}
			dropped = n
		case "After":
			if i != len(kept)-1 {
				t.Errorf("the last event is %v", kept[len(kept)-1])
			}
		}
	}
	if waited := len(kept) - 2; dropped != recorded-waited || waited < 100 || dropped < 1000 {
		t.Errorf("%d were kept, and %d are said to be dropped, of %d", waited, dropped, recorded)
	}
}

// mountSmall mounts a file system of that many kibibytes.
func mountSmall(t *testing.T, kibibytes int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kibibytes)); err != nil {
		t.Skipf("no small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDisk(t *testing.T) {
	dir := mountSmall(t, 64)
	j := run(t, filepath.Join(dir, "events.jsonl"), 0)
	j.note("Before")
	j.sync()
	filler := filepath.Join(dir, "filler")
	fill := func() {
		t.Helper()
		file, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		for err == nil {
			_, err = file.Write(make([]byte, 1024))
		}
	}
	fill()
	// More than fits into the rest of the last page.
	for n := range 200 {
		j.note(fmt.Sprint("Full", n))
	}
	// They can be read all the same.
	if shown := j.read(events.Query{}); kinds(shown[:2]) != "Before Full0" || len(shown) != 201 {
		t.Errorf("while the disk is full: %s", kinds(shown))
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	j.sync()
	if kept := j.read(events.Query{}); len(kept) != 201 {
		t.Errorf("afterwards: %s", kinds(kept))
	}
	// A core that ends, and one that starts, while it is full.
	fill()
	j.note("Lost?")
	j.stop()
	next := run(t, j.path, 0)
	next.note("Next")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	next.sync()
	kept := next.read(events.Query{After: 150})
	if last := kept[len(kept)-1]; last.GetType() != "Next" || last.GetSequence() <= 202 {
		t.Errorf("the last is %v", last)
	}
	if strings.Contains(kinds(kept), events.EventsDropped) {
		t.Errorf("nothing was dropped: %s", kinds(kept))
	}
	next.stop()
}

// A reader who does not read holds nothing up and holds nothing in memory; it goes on with the oldest that is kept.
func TestASlowReader(t *testing.T) {
	j := run(t, newPath(t), 50_000)
	slow := j.Read(events.Query{Follow: true})
	defer slow.Close()
	j.note("First")
	j.sync()
	if first, err := slow.Next(t.Context()); err != nil || kinds(first) != "First" {
		t.Fatalf("%v, %v", first, err)
	}
	for n := range 3000 {
		j.note(fmt.Sprint("Event", n))
		if n%100 == 0 {
			j.sync()
		}
	}
	j.sync()
	oldest := j.read(events.Query{})[0]
	next, err := slow.Next(t.Context())
	if err != nil || next[0].GetSequence() != oldest.GetSequence() {
		t.Fatalf("it goes on with %v, %v; the oldest is %v", next[0], err, oldest)
	}
	last := next[len(next)-1]
	for last.GetSequence() < 3001 {
		if next, err = slow.Next(t.Context()); err != nil || next[0].GetSequence() != last.GetSequence()+1 {
			t.Fatalf("after %d comes %v, %v", last.GetSequence(), next[0], err)
		}
		last = next[len(next)-1]
	}
	// It keeps up from there.
	for n := range 500 {
		j.note(fmt.Sprint("Later", n))
		if next, err = slow.Next(t.Context()); err != nil || kinds(next) != fmt.Sprint("Later", n) {
			t.Fatalf("%v, %v", next, err)
		}
	}
}

// Reading in the files goes on over their being put aside.
func TestAReaderInTheFiles(t *testing.T) {
	j := run(t, newPath(t), 400_000)
	for n := range 2500 { // more than memory has, less than a file
		j.note(fmt.Sprint("Event", n))
		if n%500 == 0 {
			j.sync()
		}
	}
	j.sync()
	reader := j.Read(events.Query{Follow: true})
	defer reader.Close()
	var last *nodev1.Event
	for n := 0; last.GetSequence() < 5000; n++ {
		next, err := reader.Next(t.Context())
		if err != nil || next[0].GetSequence() != last.GetSequence()+1 {
			t.Fatalf("after %v comes %v, %v", last, next, err)
		}
		last = next[len(next)-1]
		if n == 3 {
			for n := range 2500 {
				j.note(fmt.Sprint("Event", 2500+n))
				if n%500 == 0 {
					j.sync()
				}
			}
			j.sync()
			if _, err := os.Stat(j.path + ".1"); err != nil {
				t.Fatalf("the file was not put aside: %v", err)
			}
		}
	}
	if reader.Corrupt() != 0 {
		t.Errorf("%d lines were corrupt", reader.Corrupt())
	}
}
