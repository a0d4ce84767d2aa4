package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/proto/logline"
)

// followed is what a role writes, followed into its log, and open for the role to write.
type followed struct {
	*Stderr
	keeper *Keeper
	dir    string // of the spool
	path   string // of the log
	role   *os.File
}

// spooled is the standard error of an instance that nobody follows yet.
func spooled(t *testing.T) (*followed, *spool) {
	t.Helper()
	f := &followed{keeper: &Keeper{Dir: t.TempDir()}, path: filepath.Join(t.TempDir(), "one.log")}
	f.dir = f.keeper.spool("one.1")
	spool, role, err := makeSpool(hclog.NewNullLogger(), f.dir)
	if err != nil {
		t.Fatal(err)
	}
	f.role = role
	t.Cleanup(func() {
		_ = f.role.Close()
		if err := removeSpool(f.dir); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(f.keeper.Dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
	return f, spool
}

// follow begins where the one before left off.
func (f *followed) follow(t *testing.T, spool *spool) {
	t.Helper()
	offset, from, err := keepOffset(f.path+".offset", false)
	if err != nil {
		t.Fatal(err)
	}
	if f.Stderr, err = follow(hclog.NewNullLogger(), spool, f.path, from, offset, &f.keeper.stderrs, ""); err != nil {
		t.Fatal(err)
	}
}

func followFile(t *testing.T) *followed {
	t.Helper()
	f, spool := spooled(t)
	f.follow(t, spool)
	return f
}

func (f *followed) write(t *testing.T, text string) {
	t.Helper()
	if _, err := f.role.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// awaitLast waits until a line is the last one that was read.
func (f *followed) awaitLast(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		if lines := f.Lines(); len(lines) > 0 && lines[len(lines)-1] == want {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%q is not read; the last lines are %q", want, lines)
		}
	}
}

// What explains an end is kept, however much was written before and after it.
func TestTheLastLines(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	f.write(t, strings.Repeat(strings.Repeat("y", 99)+"\n", 9000))
	f.write(t, "panic: that was too much\n"+strings.Repeat("a line of the trace\n\n", 100))
	f.Finish()
	if kept := f.Lines(); len(kept) != keptLines || kept[0] != "panic: that was too much" || kept[keptLines-1] != "a line of the trace" {
		t.Errorf("what explains the end is %q", kept)
	}
}

// A trace of many goroutines is longer than what is kept of the end.
func TestTheFirstLineOfALongTrace(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	f.write(t, "fatal error: concurrent map writes\n\n"+strings.Repeat("goroutine 7 [select]:\nmain.serve(...)\n\n", 8000))
	f.Finish()
	if kept := f.Lines(); len(kept) != keptLines || kept[0] != "fatal error: concurrent map writes" || kept[keptLines-1] != "main.serve(...)" {
		t.Errorf("what explains the end is %q", kept)
	}
}

func TestALogThatIsTooLargeBeginsAnew(t *testing.T) {
	t.Parallel()
	f, spool := spooled(t)
	old := strings.Repeat(strings.Repeat("z", 63)+"\n", maxLog/64)
	if err := os.WriteFile(f.path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	f.follow(t, spool)
	f.write(t, "the last line before\n")
	f.awaitLast(t, "the last line before")
	f.write(t, "the first line after\n")
	f.Finish()
	(&followed{path: f.path + ".1"}).holds(t, old)
	f.holds(t, "the last line before\nthe first line after\n")
	if lines := f.Lines(); lines[len(lines)-1] != "the first line after" {
		t.Errorf("the last line that was read is %q", lines[len(lines)-1])
	}
}

func (f *followed) holds(t *testing.T, want string) {
	t.Helper()
	if now, err := os.ReadFile(f.path); err != nil || string(now) != want {
		t.Errorf("the log has %d bytes, beginning with %.60q, want %d, beginning with %.60q (%v)", len(now), now, len(want), want, err)
	}
}

// A role that writes while no core reads takes the room of its spool and no more. All of that is in the log afterwards, and the room is there again.
func TestASpoolIsBounded(t *testing.T) {
	t.Parallel()
	f, spool := spooled(t)
	if os.Geteuid() != 0 {
		t.Skip("cannot run: without the right to mount, the kernel bounds no spool")
	}
	block := bytes.Repeat([]byte(strings.Repeat("w", 63)+"\n"), 1<<10)
	var written []byte
	for len(written) <= 2*spoolSize {
		n, err := f.role.Write(block)
		written = append(written, block[:n]...)
		if err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			break
		}
	}
	if len(written) > spoolSize || len(written) < spoolSize-len(block) {
		t.Errorf("%d bytes were written into a spool of %d", len(written), spoolSize)
	}
	f.follow(t, spool)
	f.awaitLast(t, strings.Repeat("w", 63))
	for deadline := time.Now().Add(5 * time.Minute); ; {
		if _, err := f.role.WriteString("after\n"); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("there is no room again: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
	f.Finish()
	var all []byte
	for _, path := range []string{f.path + ".1", f.path} {
		content, err := os.ReadFile(path)
		if err != nil || len(content) > maxLog {
			t.Errorf("%s has %d bytes (%v)", path, len(content), err)
		}
		all = append(all, content...)
	}
	if want := append(written, "after\n"...); !bytes.Equal(all, want) {
		t.Errorf("of what was written while nobody read %d bytes of %d are in the log", len(all), len(want))
	}
	f.takes(t, 2*spoolPiece)
}

// The room of what was read is given back whatever was written at a time.
func TestTheRoomOfASpoolComesBack(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	line := strings.Repeat("v", 99) + "\n"
	for n := range 64 {
		f.write(t, strings.Repeat(line, 700)+fmt.Sprintln("piece", n))
		f.awaitLast(t, fmt.Sprint("piece ", n))
	}
	f.Finish()
	f.takes(t, 2*spoolPiece)
}

// takes fails the test if the spool takes more room.
func (f *followed) takes(t *testing.T, most int64) {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Stat(filepath.Join(f.dir, spoolFile), &stat); err != nil || stat.Blocks*512 > most {
		t.Errorf("the spool takes %d bytes when all of it was read (%v)", stat.Blocks*512, err)
	}
}

// What a core has not read when it leaves is read by the next, and nothing is in the log twice.
func TestTheNextCoreGoesOn(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	f.write(t, "one\ntwo\nthr")
	f.awaitLast(t, "thr")
	f.Finish()
	f.write(t, "ee\nfour\n")
	f.write(t, "last wor")
	for range 2 { // the second has nothing to do
		f.next(t)
		f.Finish()
	}
	f.holds(t, "one\ntwo\nthree\nfour\nlast wor")
}

// next is the next core.
func (f *followed) next(t *testing.T) {
	t.Helper()
	spool, err := openSpool(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	f.follow(t, spool)
}

// A role that empties its spool while a core has a part of a line of it loses that, and nothing that comes after.
func TestASpoolThatIsEmptiedBetweenCores(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	f.write(t, "one\na long unfinished line")
	f.awaitLast(t, "a long unfinished line")
	f.Finish()
	if err := f.role.Truncate(0); err != nil {
		t.Fatal(err)
	}
	f.write(t, "all of it\n")
	f.next(t)
	f.Finish()
	log, err := os.ReadFile(f.path)
	if err != nil || !strings.HasSuffix(string(log), "all of it\n") {
		t.Errorf("the log is %q (%v)", log, err)
	}
}

// What is written faster than a log may grow is left out, and the log says so.
func TestALogGrowsSlowly(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	log := &roleLog{left: logBurst, at: start}
	if room := log.room(start); room != logBurst {
		t.Errorf("a new log may take %d bytes", room)
	}
	log.left -= logBurst
	if room := log.room(start); room != logLeast {
		t.Errorf("one that has taken all may take %d bytes", room)
	}
	if room := log.room(start.Add(2 * time.Second)); room != 2*logRate {
		t.Errorf("after two seconds it may take %d bytes", room)
	}
	if room := log.room(start.Add(time.Hour)); room != logBurst {
		t.Errorf("after an hour it may take %d bytes", room)
	}
	path := filepath.Join(t.TempDir(), "full.log")
	full, err := openRoleLog(hclog.NewNullLogger(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.close() }()
	// Of a role that writes without an end.
	full.left, full.at = 0, start
	const turn, seconds = 10 * time.Millisecond, 4 // as often as a follower is woken
	for n := range seconds * time.Second / turn {
		most := full.room(start.Add((n + 1) * turn))
		full.leaveOut(1000)
		_, _ = full.Write(make([]byte, most))
	}
	if info, err := os.Stat(path); err != nil || info.Size() > seconds*logRate*101/100 || info.Size() < seconds*logRate*99/100 {
		t.Errorf("in %d seconds the log has grown to %d bytes (%v)", seconds, info.Size(), err)
	}
	path = filepath.Join(t.TempDir(), "one.log")
	written, err := openRoleLog(hclog.NewNullLogger(), path)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = written.Write([]byte("before"))
	written.leaveOut(7)
	_, _ = written.Write([]byte("after\n"))
	written.leaveOut(8)
	if err := written.close(); err != nil {
		t.Fatal(err)
	}
	(&followed{path: path}).holds(t, "before\nreeve: 7 bytes are left out here: they were written faster than the log may grow\nafter\n"+
		"reeve: 8 bytes are left out here: they were written faster than the log may grow\n")
}

// A role has its spool open for writing and can do with it whatever it likes.
func TestASpoolThatItsRoleEmptiesIsFollowed(t *testing.T) {
	t.Parallel()
	f := followFile(t)
	f.write(t, "a long line before\n")
	f.awaitLast(t, "a long line before")
	if err := f.role.Truncate(0); err != nil {
		t.Fatal(err)
	}
	f.write(t, "after\n")
	f.awaitLast(t, "after")
	f.Finish()
}

// The log says where each instance begins, on a line of its own whatever was written before.
func TestBeginningsAreInTheLog(t *testing.T) {
	t.Parallel()
	keeper := &Keeper{Dir: t.TempDir(), Logs: t.TempDir()}
	for number, text := range []string{"one\ntwo", "three\n", ""} {
		name := fmt.Sprintf("one.%d", number)
		out, role, err := keeper.MakeStderr(hclog.NewNullLogger(), "one", name, "node/one/"+name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = role.WriteString(text)
		if err := errors.Join(err, role.Close()); err != nil {
			t.Fatal(err)
		}
		out.Finish()
		// The core that adopts it goes on, and no instance begins.
		if out, err = keeper.AdoptStderr(hclog.NewNullLogger(), "one", name); err != nil {
			t.Fatal(err)
		}
		out.Finish()
		if err := keeper.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(keeper.log("one"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range bytes.Lines(content) {
		if id := logline.Begins(line); id != "" {
			line = []byte("begins " + id)
		}
		lines = append(lines, strings.TrimSuffix(string(line), "\n"))
	}
	if want := []string{"begins node/one/one.0", "one", "two", "begins node/one/one.1", "three", "begins node/one/one.2"}; !slices.Equal(lines, want) {
		t.Errorf("the log is %q, want %q", lines, want)
	}
}
