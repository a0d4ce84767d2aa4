package plugintest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ByHand is a process of a variant that was started as a person starts it to debug it. It is killed when the test ends.
type ByHand struct {
	Command *exec.Cmd
	// Socket is where it waits for a node, as it has said.
	Socket string
	// Ended is closed when it has ended.
	Ended chan struct{}
}

// ByHand starts a variant with -debug, and returns when it has said where it waits.
func (e *Executable) ByHand(t testing.TB, variant Variant, settings ...func(*exec.Cmd)) *ByHand {
	t.Helper()
	dir := Dir(t)
	path := filepath.Join(dir, "byhand")
	e.Write(t, path, variant)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = write.Close() }()
	p := &ByHand{Ended: make(chan struct{})}
	p.Command, err = started(func() *exec.Cmd {
		command := exec.Command(path, "-debug")
		command.Env = []string{"TMPDIR=/tmp"}
		for _, set := range settings {
			set(command)
		}
		command.Stderr = write
		return command
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Command.Process.Kill() // if it has not ended
		<-p.Ended
		if p.Socket != "" {
			_ = os.RemoveAll(filepath.Dir(p.Socket)) // which one that is killed leaves
		}
	})
	said := make(chan string, 1)
	go func() {
		defer close(p.Ended)
		defer func() { _ = read.Close() }()
		for lines := bufio.NewScanner(read); lines.Scan(); {
			if words := strings.Fields(lines.Text()); len(words) > 0 && strings.HasSuffix(words[len(words)-1], ".sock") && len(said) == 0 {
				said <- words[len(words)-1]
			}
		}
		_ = p.Command.Wait()
	}()
	select {
	case p.Socket = <-said:
	case <-p.Ended:
	case <-time.After(5 * time.Minute):
	}
	if p.Socket == "" {
		t.Fatal("it does not say where it waits")
	}
	return p
}

// started starts a file that was just written: another process of this test may have it open until it executes its own. A command can be started only once, also
// one that could not be.
func started(command func() *exec.Cmd) (*exec.Cmd, error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		next := command()
		err := next.Start()
		if err == nil || !errors.Is(err, syscall.ETXTBSY) || time.Since(began) > 5*time.Minute {
			return next, err
		}
	}
}
