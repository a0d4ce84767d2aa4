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

// searchPath is where programs are looked for, whatever the core's own environment says.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxKey is the size of a key at most: what every pipe takes.
const maxKey = 4096

// maxOutput is how much a program may say, in bytes, and maxText how much of that gets into an error.
const maxOutput, maxText = 64 << 10, 512

// Program is an external program that is run to its end.
type Program struct {
	// Name is looked for where the system's programs are; Package is the Debian package that has it.
	Name, Package string
	Args          []string
	// Key, if it is not nil, is what the program reads from its standard input, and Next from descriptor 3. Neither is in the arguments, the environment or a
	// file.
	Key, Next *keys.Secret
}

// ExitError says that a program failed.
type ExitError struct {
	// Program and Action are what was run: "cryptsetup", "luksFormat", say.
	Program, Action string
	// Code is its exit code; -1 if a signal ended it.
	Code int
	// Text is what it said of it, without control characters and bounded; it holds no key.
	Text string
}

func (e *ExitError) Error() string {
	text := e.Text
	if text == "" {
		text = "it said nothing of why"
	}
	return fmt.Sprintf("%s %s ended with code %d: %s", e.Program, e.Action, e.Code, text)
}

// Run runs the program and returns what it wrote to its standard output. *MissingProgramError if it is not installed, *ExitError if it failed. It ends with
// the context, and with the core: a program that outlived a core would work on what the next core works on.
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
	// The death of the thread that started a program counts as the core's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = command.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("volume: %s was ended: %w", p.Name, context.Cause(ctx))
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

func (p Program) find() (string, error) {
	for _, directory := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(directory, p.Name)); err == nil {
			return path, nil
		}
	}
	return "", &MissingProgramError{Program: p.Name, Package: p.Package}
}

// pipe returns a pipe that holds a key and nothing more: keys are smaller than what a pipe takes without a reader.
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

// text makes what a program said fit for an error. Programs do not repeat keys; should one do so, its words are lost rather than the key.
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

// limited keeps the beginning of what is written to it.
type limited struct{ content bytes.Buffer }

func (l *limited) Write(more []byte) (int, error) {
	l.content.Write(more[:min(len(more), maxOutput-l.content.Len())])
	return len(more), nil
}
