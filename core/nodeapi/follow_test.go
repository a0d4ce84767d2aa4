package nodeapi_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/nodeapi"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// writer is an instance that writes to its log.
type writer struct {
	t    *testing.T
	path string
	file *os.File
}

// write opens the log of a role as the core does for an instance.
func (a *api) write(role string) *writer {
	w := &writer{t: a.t, path: filepath.Join(a.dir, role+".log")}
	w.open()
	a.t.Cleanup(func() { _ = w.file.Close() })
	return w
}

func (w *writer) open() {
	w.t.Helper()
	var err error
	if w.file, err = os.OpenFile(w.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) say(text string) {
	w.t.Helper()
	if _, err := w.file.WriteString(text); err != nil {
		w.t.Fatal(err)
	}
}

// putAway renames the log, as the core does when it is full.
func (w *writer) putAway() {
	w.t.Helper()
	if err := w.file.Close(); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.path, w.path+".1"); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

// follower is a client that follows a log.
type follower struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[nodev1.ReadLogResponse]
	got    bytes.Buffer
}

func (a *api) follow(role string, tail uint32) *follower {
	a.t.Helper()
	stream, err := a.client().ReadLog(a.context(), &nodev1.ReadLogRequest{Role: role, Tail: tail, Follow: true})
	if err != nil {
		a.t.Fatal(err)
	}
	return &follower{t: a.t, stream: stream}
}

// expect receives until there is as much as is wanted, which is to be that.
func (f *follower) expect(want string) {
	f.t.Helper()
	for f.got.Len() < len(want) {
		f.receive()
	}
	if got := f.got.String(); got != want {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		f.t.Fatalf("received %d bytes, wanted %d; from byte %d on they differ: %.100q, not %.100q", len(got), len(want), at, got[at:], want[at:])
	}
	f.got.Reset()
}

// until receives until a line comes, and returns all up to it.
func (f *follower) until(line string) string {
	f.t.Helper()
	for !strings.Contains(f.got.String(), line+"\n") {
		f.receive()
	}
	got := f.got.String()
	f.got.Reset()
	return got
}

func (f *follower) receive() {
	f.t.Helper()
	response, err := f.stream.Recv()
	if err != nil {
		f.t.Fatalf("after %.200q: %v", f.got.String(), err)
	}
	if data := response.GetData(); len(data) == 0 || data[len(data)-1] != '\n' {
		f.t.Errorf("a message of %d bytes does not end with a line", len(data))
	}
	f.got.Write(response.GetData())
}

func TestALogIsFollowed(t *testing.T) {
	nodeapi.WaitsForEver(t)
	a := serve(t)
	w := a.write("role")
	w.say("one\ntwo\nthree\nfou")
	all, last := a.follow("role", 0), a.follow("role", 2)
	all.expect("one\ntwo\nthree\n")
	last.expect("three\n")
	w.say("r\n")
	all.expect("four\n")
	last.expect("four\n")
	for n := range 100 {
		w.say(fmt.Sprintln("line", n))
		all.expect(fmt.Sprintln("line", n))
	}
	// A long line comes when it has ended, and only as much of it as is shown.
	for range 100 {
		w.say(strings.Repeat("y", 10<<10))
	}
	w.say("\nafter\n")
	all.expect(strings.Repeat("y", 256<<10) + fmt.Sprintf(" [%d more bytes]\n", 100*10<<10-256<<10) + "after\n")
	last.until("after") // a call whose client does not read is only cut off
	a.stop()
	if _, err := all.stream.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("at the end: %v", err)
	}
}

// What comes after the log was put away is received without a gap, also the rest of a line, and though nobody has read all of it before.
func TestALogThatIsPutAwayIsFollowed(t *testing.T) {
	a := serve(t)
	w := a.write("role")
	w.say("first\n")
	f := a.follow("role", 0)
	f.expect("first\n")
	for n := range 50 {
		line := fmt.Sprintln("round", n, strings.Repeat("x", 100*n))
		w.say(line + "unfin")
		w.putAway()
		w.say("ished\n")
		f.expect(line + "unfinished\n")
	}
	// An operator has taken it away.
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.say("still there\n")
	f.expect("still there\n")
	_ = w.file.Close()
	w.open()
	w.say("in a new file\n")
	if got := f.until("in a new file"); !strings.HasPrefix(got, "--- reeve: part of the log may be missing here") {
		t.Errorf("received: %q", got)
	}
}

// An operator can empty a log, of which then nothing is kept.
func TestALogThatIsEmptiedIsFollowed(t *testing.T) {
	a := serve(t)
	w := a.write("role")
	w.say("before\n")
	w.putAway()
	w.say("first\n")
	f := a.follow("role", 0)
	f.expect("before\nfirst\n")
	if err := w.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	w.say("new\n")
	f.expect("--- reeve: part of the log is missing here: it was emptied before it had been read ---\nnew\n")
}

// A client that does not read loses what the files have not any more, and is told so; the server holds nothing for it.
func TestAClientThatDoesNotRead(t *testing.T) {
	a := serve(t)
	w := a.write("role")
	w.say("first\n")
	f := a.follow("role", 0)
	f.expect("first\n")
	line := strings.Repeat("z", 1023) + "\n"
	for range 8 {
		w.say(strings.Repeat(line, 1024))
		w.putAway()
	}
	w.say("last\n")
	got := f.until("last")
	if !strings.Contains(got, "\n--- reeve: part of the log may be missing here") || len(got) > 6<<20 {
		t.Errorf("of 8 MiB, %d bytes were received", len(got))
	}
	for line := range strings.Lines(got) {
		if len(line) != 1024 && line != "last\n" && !strings.HasPrefix(line, "--- reeve: ") {
			t.Errorf("a line of %d bytes was received: %.100q", len(line), line)
		}
	}
}

func TestTheLastLinesAreThoseOfBothFiles(t *testing.T) {
	a := serve(t)
	w := a.write("role")
	w.say("1\n2\n3\n")
	w.putAway()
	w.say("4\n5\n")
	for tail, want := range []string{"1\n2\n3\n4\n5\n", "5\n", "4\n5\n", "3\n4\n5\n", "2\n3\n4\n5\n", "1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5\n"} {
		got, err := a.readLog(a.client(), "role", uint32(tail))
		if err != nil || got != want {
			t.Errorf("the last %d: %q, %v", tail, got, err)
		}
		a.follow("role", uint32(tail)).expect(want)
	}
	// A line may begin in the one file and end in the other.
	w.say("6 beg")
	w.putAway()
	w.say("ins\n7\n")
	for tail, want := range []string{"4\n5\n6 begins\n7\n", "7\n", "6 begins\n7\n", "5\n6 begins\n7\n"} {
		if got, err := a.readLog(a.client(), "role", uint32(tail)); err != nil || got != want {
			t.Errorf("the last %d: %q, %v", tail, got, err)
		}
	}
	// Before anything is in the new file, and where there is none.
	w.putAway()
	if got, err := a.readLog(a.client(), "role", 1); err != nil || got != "7\n" {
		t.Errorf("the last line, of the earlier file: %q, %v", got, err)
	}
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	f := a.follow("role", 1)
	f.expect("7\n")
	_ = w.file.Close()
	w.open()
	w.say("8\n")
	f.expect("8\n")
}

// However many follow, there is one inotify instance for them, and none is left when they have gone.
func TestFollowersShareAnInstance(t *testing.T) {
	instances := func() int {
		t.Helper()
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, entry := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && target == "anon_inode:inotify" {
				n++
			}
		}
		return n
	}
	a := serve(t)
	before := instances()
	var writers []*writer
	var followers []*follower
	for n := range 20 {
		w := a.write(fmt.Sprint("role", n%5))
		if n < 5 {
			w.say("first\n")
		}
		writers = append(writers, w)
		f := a.follow(fmt.Sprint("role", n%5), 1)
		f.receive()
		f.got.Reset()
		followers = append(followers, f)
	}
	if now := instances(); now != before+1 {
		t.Errorf("20 followers have %d instances", now-before)
	}
	for n := range 5 {
		writers[n].say(fmt.Sprintln("for", n))
	}
	for n, f := range followers {
		f.expect(fmt.Sprintln("for", n%5))
	}
	a.stop()
	for _, f := range followers {
		if _, err := f.stream.Recv(); err == nil || err == io.EOF {
			t.Errorf("a follower ends with %v", err)
		}
	}
	if now := instances(); now != before {
		t.Errorf("%d instances are left", now-before)
	}
}
