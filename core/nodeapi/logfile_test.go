package nodeapi

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// beforeReads is a context that runs a function once, before the next read of a log that was opened with it.
type beforeReads struct {
	context.Context
	run func()
}

// Err implements context.Context.
func (c *beforeReads) Err() error {
	if run := c.run; run != nil {
		c.run = nil
		run()
	}
	return c.Context.Err()
}

// A log is emptied between the look at its size and the read. Once, and nothing is missing, nor said to be; twice, and the round that was in no file any more is reported.
func TestALogThatIsEmptiedBeforeARead(t *testing.T) {
	t.Run("once", func(t *testing.T) { emptiedBeforeARead(t, false) })
	t.Run("twice", func(t *testing.T) { emptiedBeforeARead(t, true) })
}

func emptiedBeforeARead(t *testing.T, twice bool) {
	path := filepath.Join(t.TempDir(), "role.log")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got bytes.Buffer
	sender := &lineSender{send: func(data []byte) error { got.Write(data); return nil }}
	expect := func(l *roleLog, want string) {
		t.Helper()
		if err := l.catchUp(sender); err != nil {
			t.Fatal(err)
		}
		if err := sender.flush(); err != nil {
			t.Fatal(err)
		}
		if got.String() != want {
			t.Errorf("received %q, wanted %q", got.String(), want)
		}
		got.Reset()
	}

	first, second, third := strings.Repeat("first\n", 10), strings.Repeat("second\n", 10), strings.Repeat("third\n", 20)
	ctx := &beforeReads{Context: t.Context()}
	write(path, first)
	l, err := openLog(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.limit = noLimit
	expect(l, first)
	write(path+earlier, first)
	write(path, "")
	expect(l, "")

	write(path, second)
	if !twice {
		expect(l, second)
		write(path, second+third)
		ctx.run = func() {
			write(path+earlier, second+third)
			write(path, "last\n")
		}
		expect(l, third+"last\n")
		return
	}
	ctx.run = func() {
		write(path+earlier, second)
		write(path, third)
		write(path+earlier, third)
		write(path, "last\n")
	}
	expect(l, "--- reeve: "+missingEmptied+" ---\n"+strings.TrimPrefix(third, "third\n")+"last\n")
}
