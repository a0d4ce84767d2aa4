package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Result is how a command ended, and what it said.
type Result struct {
	Machine, Command string
	Code             int
	// Stdout is what it printed, Terminal what it said to whoever sits at its terminal.
	Stdout, Terminal string
	// Questions are those that were answered.
	Questions int
}

// String is the result for people who look at a failed test.
func (r Result) String() string {
	return fmt.Sprintf("%s: %s: exit code %d\n--- stdout\n%s--- terminal\n%s---", r.Machine, r.Command, r.Code, r.Stdout, r.Terminal)
}

// commandTime is how long a command may take, longer than any waits by itself.
const commandTime = 6 * time.Minute

// question is how a command ends what it says when somebody has to answer, and wantsID when somebody has to type the ID of the cluster that it names.
const question = "[y/N] "

var wantsID = regexp.MustCompile(`Type the ID of the cluster \(([0-9a-f]+)\) to go on: $`)

// Must runs a command as root of the machine, and fails the test if the command does.
func (m *Machine) Must(t testing.TB, command string) Result {
	t.Helper()
	result := m.Run(t, command)
	if result.Code != 0 {
		t.Fatal(result)
	}
	return result
}

// Run runs a command as somebody does who sits at a terminal of the machine, as root. What it asks is answered with yes, or with the ID that it wants to have typed.
func (m *Machine) Run(t testing.TB, command string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	result, err := m.run(ctx, command)
	if err != nil {
		t.Fatalf("%v\n%s", err, result)
	}
	return result
}

func (m *Machine) run(ctx context.Context, command string) (result Result, err error) {
	result = Result{Machine: m.Name, Command: command}
	terminal, theirs, err := openTerminal()
	if err != nil {
		return result, err
	}
	stdout, printed, err := os.Pipe()
	if err != nil {
		return result, errors.Join(err, terminal.Close(), theirs.Close())
	}
	var out bytes.Buffer
	var said conversation
	var readers sync.WaitGroup
	readers.Go(func() { _, _ = io.Copy(&out, stdout) })
	// It ends with an error when nobody has the other side open any more.
	readers.Go(func() { said.hold(terminal) })
	stop := func() bool { return true }
	got, err := call(m.socket(), request{Command: "set -o pipefail; " + command, Terminal: true}, []*os.File{theirs, printed, theirs},
		func(end func()) { stop = context.AfterFunc(ctx, end) })
	stop()
	_ = theirs.Close()
	_ = printed.Close()
	// What the command has left running may hold them.
	late := time.AfterFunc(5*time.Second, func() { _, _ = stdout.Close(), terminal.Close() })
	readers.Wait()
	late.Stop()
	_, _ = stdout.Close(), terminal.Close()
	result.Code, result.Stdout, result.Terminal, result.Questions = got.Code, out.String(), said.text.String(), said.questions
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return result, err
}

// conversation is what a command says at its terminal, and what it is answered.
type conversation struct {
	text      strings.Builder
	questions int
	answered  int // how long the text was at the last question
}

func (c *conversation) hold(terminal *os.File) {
	buffer := make([]byte, 4096)
	for {
		n, err := terminal.Read(buffer)
		c.text.Write(buffer[:n])
		if answer := answerTo(c.text.String()); answer != "" && c.text.Len() > c.answered {
			c.questions++
			c.answered = c.text.Len()
			if _, err := terminal.WriteString(answer + "\n"); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// answerTo is what is typed after a text; empty: nothing, it does not end with a question.
func answerTo(text string) string {
	if strings.HasSuffix(text, question) {
		return "yes"
	}
	if asked := wantsID.FindStringSubmatch(text); asked != nil {
		return asked[1]
	}
	return ""
}

// openTerminal makes a terminal: the side of who sits at it, and that of the programs. It shows nothing of what is typed.
func openTerminal() (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = ours.Close()
		}
	}()
	control, err := ours.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var descriptor uintptr
	var failed error
	err = control.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		var number unix.Errno
		descriptor, _, number = unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if number != 0 {
			failed = number
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, nil, fmt.Errorf("a terminal cannot be made: %w", err)
	}
	theirs = os.NewFile(descriptor, "terminal")
	settings, err := unix.IoctlGetTermios(int(descriptor), unix.TCGETS)
	if err == nil {
		settings.Lflag &^= unix.ECHO
		settings.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(descriptor), unix.TCSETS, settings)
	}
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}
