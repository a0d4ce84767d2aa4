package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/keys"
)

// searchPath is where programs are looked for. The core's own PATH does not count.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxKey is the largest key in bytes: every pipe buffers that much without a reader.
const maxKey = 4096

// maxOutput is how many bytes of a program's output are kept, maxText how many of them an error quotes.
const maxOutput, maxText = 64 << 10, 512

// Program is an external program.
type Program struct {
	// Name is looked for in searchPath. Package is the Debian package that contains it.
	Name, Package string
	Args          []string
	// The program reads Key from its standard input and Next from descriptor 3; nil: not given. Keys are never in arguments, environment or files.
	Key, Next *keys.Secret
}

// ExitError says that a program failed.
type ExitError struct {
	// Program and Action are what ran, such as "cryptsetup" and "luksFormat".
	Program, Action string
	// Code is the exit code; -1 if a signal ended it.
	Code int
	// Text is its bounded error output without control characters. It holds no key.
	Text string
}

func (e *ExitError) Error() string {
	text := e.Text
	if text == "" {
		text = "it said nothing of why"
	}
	return fmt.Sprintf("%s %s ended with code %d: %s", e.Program, e.Action, e.Code, text)
}

// Run runs the program and returns its standard output. *MissingProgramError if it is not installed, *ExitError if it failed. It ends with the
// context, and with the core: otherwise it could work on the same volume as the next core.
func (p Program) Run(ctx context.Context) ([]byte, error) {
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, path, p.Args...)
	command.Env = []string{"PATH=" + searchPath, "LC_ALL=C"}
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var output, problems limited
	command.Stdout, command.Stderr = &output, &problems
	if p.Key != nil {
		read, err := pipe(p.Key)
		if err != nil {
			return nil, err
		}
		defer func() { _ = read.Close() }()
		command.Stdin = read
	}
	if p.Next != nil {
		read, err := pipe(p.Next)
		if err != nil {
			return nil, err
		}
		defer func() { _ = read.Close() }()
		command.ExtraFiles = []*os.File{read}
	}
	// Pdeathsig fires when the thread that started the program ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = command.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("volume: %s was stopped: %w", p.Name, context.Cause(ctx))
	case err == nil:
		return output.content.Bytes(), nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, fmt.Errorf("volume: run %s: %w", p.Name, err)
	}
	action := ""
	if len(p.Args) > 0 {
		action = p.Args[0]
	}
	return nil, &ExitError{Program: p.Name, Action: action, Code: exit.ExitCode(), Text: p.text(problems.content.Bytes())}
}

// Check fails with *MissingProgramError if the program is not installed.
func (p Program) Check() error {
	_, err := p.find()
	return err
}

func (p Program) find() (string, error) {
	for _, directory := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(directory, p.Name)); err == nil {
			return path, nil
		}
	}
	return "", &MissingProgramError{Program: p.Name, Package: p.Package}
}

// pipe returns a pipe that holds a key. A pipe buffers that much without a reader.
func pipe(key *keys.Secret) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("volume: make a pipe for a key: %w", err)
	}
	err = key.Use(func(content []byte) error {
		if len(content) > maxKey {
			return errors.New("volume: a key is too long for a pipe")
		}
		_, err := write.Write(content)
		return err
	})
	if err := errors.Join(err, write.Close()); err != nil {
		return nil, errors.Join(err, read.Close())
	}
	return read, nil
}

// text makes a program's error output fit for an error. Programs do not repeat keys; if one did, its whole output would be dropped.
func (p Program) text(said []byte) string {
	for _, key := range []*keys.Secret{p.Key, p.Next} {
		if key == nil {
			continue
		}
		err := key.Use(func(content []byte) error {
			if bytes.Contains(said, content) {
				said = []byte("(what it said is left out, since it repeats a key)")
			}
			return nil
		})
		if err != nil {
			return ""
		}
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(said), "?"))
	text = strings.TrimSpace(text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + " …"
	}
	return text
}

// limited keeps the first maxOutput bytes that are written to it.
type limited struct{ content bytes.Buffer }

func (l *limited) Write(more []byte) (int, error) {
	l.content.Write(more[:min(len(more), maxOutput-l.content.Len())])
	return len(more), nil
}
