package plugin

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/sdk/event"
)

func TestShare(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(after time.Duration) time.Time { return start.Add(after) }
	var s share
	taken := 0
	for s.take(at(time.Duration(taken)), 1000) {
		taken++
	}
	if want := shareSize / (1000 + lineCost); taken != want {
		t.Errorf("%d lines of 1000 bytes were taken, want %d", taken, want)
	}
	if s.take(at(sharePeriod-1), 1) {
		t.Error("a short line slipped in")
	}
	if out, ok := s.settle(at(sharePeriod-1), false); ok {
		t.Errorf("settled too early: %+v", out)
	}
	if until := s.until(); !until.Equal(at(sharePeriod)) {
		t.Errorf("until %s", until)
	}
	s.skipped += 7
	if out, ok := s.settle(at(sharePeriod), false); !ok || out != (left{lines: 2, skipped: 7}) {
		t.Errorf("settled %+v, %v", out, ok)
	}
	if s.spent() || !s.until().IsZero() || !s.take(at(sharePeriod), 1000) {
		t.Error("there is no new share")
	}
	if _, ok := s.settle(at(time.Hour), true); ok {
		t.Error("nothing was left out, and it says something")
	}
	// A role that writes within its share is never cut off.
	for n := range 10000 {
		if !s.take(at(time.Hour+time.Duration(n)*time.Second/10), 500) {
			t.Fatalf("line %d, of ten in a second, was left out", n)
		}
	}
}

// lineSink keeps what is logged, and can be waited for.
type lineSink struct {
	mu    sync.Mutex
	lines event.Value[[]string]
}

func (l *lineSink) Accept(_ string, _ hclog.Level, message string, arguments ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, _ := l.lines.Get()
	l.lines.Set(append(before[:len(before):len(before)], message+" "+strings.TrimSuffix(fmt.Sprintln(arguments...), "\n")))
}

// followed is a log that is followed, open for its role to write.
type followed struct {
	*follower
	path string
	role *os.File
	sink *lineSink
}

func followFile(t *testing.T) *followed {
	t.Helper()
	f := &followed{path: filepath.Join(t.TempDir(), "one.log"), sink: &lineSink{}}
	var err error
	if f.role, err = openLog(f.path); err != nil {
		t.Fatal(err)
	}
	log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: new(bytes.Buffer)})
	log.RegisterSink(f.sink)
	if f.follower, err = follow(log, f.path, -1, nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.role.Close() })
	return f
}

func (f *followed) write(t *testing.T, text string) {
	t.Helper()
	if _, err := f.role.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestAFloodIsLeftOutOfTheLog(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	const lines, length = 9000, 100
	f.write(t, strings.Repeat(strings.Repeat("y", length-1)+"\n", lines))
	f.write(t, "panic: that was too much\n")
	f.finish()
	logged, _ := f.sink.lines.Get()
	forwarded := shareSize / (length + lineCost)
	if len(logged) != forwarded+1 {
		t.Errorf("%d lines were logged, want %d", len(logged), forwarded+1)
	}
	// Forwarded, left out and unread are all there is.
	var left, unread int
	var key string
	last := logged[len(logged)-1]
	if _, err := fmt.Sscanf(last, "%d lines left out %s %d", &left, &key, &unread); err != nil || key != "bytes_unread" {
		t.Fatalf("the last line is %q", last)
	}
	if rest := lines*length + len("panic: that was too much\n") - forwarded*length - unread; left < rest/length || left > rest/length+2 {
		t.Errorf("%q, after %d of %d lines", last, forwarded, lines)
	}
	if kept := f.lines(); len(kept) != keptLines || kept[keptLines-1] != "panic: that was too much" {
		t.Errorf("what explains the end is %q", kept)
	}
}

func TestALogThatIsTooLargeBeginsAnew(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	changes, err := (*watches)(nil).watch(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = changes.Close() }()
	if err := changes.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	block := strings.Repeat(strings.Repeat("z", 63)+"\n", 1<<10)
	for range maxLog / len(block) {
		f.write(t, block)
	}
	f.write(t, "the last line before\n")
	// The core notices by itself, while the role runs.
	for size(t, f.path) > maxLog {
		if _, err := changes.Read(make([]byte, 4096)); err != nil {
			t.Fatalf("the log is as large as it was: %v", err)
		}
	}
	f.write(t, "the first line after\n")
	f.finish()
	kept, err := os.ReadFile(f.path + earlier)
	if err != nil || len(kept) != keptLog || !bytes.HasSuffix(kept, []byte("z\nthe last line before\n")) {
		t.Errorf("of the old log %d bytes are kept (%v)", len(kept), err)
	}
	if now, err := os.ReadFile(f.path); err != nil || string(now) != "the first line after\n" {
		t.Errorf("the log has %d bytes, beginning with %.40q (%v)", len(now), now, err)
	}
	logged, _ := f.sink.lines.Get()
	if last := logged[len(logged)-1]; !strings.Contains(last, "the log became too large and began anew") || !strings.Contains(last, "times_emptied 1") {
		t.Errorf("the last line is %q", last)
	}
	if lines := f.lines(); lines[len(lines)-1] != "the first line after" {
		t.Errorf("the last line that was read is %q", lines[len(lines)-1])
	}
}

// A role has its log open for writing and can do with it whatever it likes.
func TestALogThatItsRoleEmptiesIsFollowed(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	f.write(t, "a long line before\n")
	await(t, f.sink, "a long line before ")
	if err := f.role.Truncate(0); err != nil {
		t.Fatal(err)
	}
	f.write(t, "after\n")
	await(t, f.sink, "after ")
	f.finish()
}

func await(t *testing.T, sink *lineSink, line string) {
	t.Helper()
	for lines := sink.lines.Watch(); ; {
		now, err := lines.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range now {
			if one == line {
				return
			}
		}
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
