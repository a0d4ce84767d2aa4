package testcluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Variable is the environment variable that names the socket of the program, for processes that a test starts and that make a cluster.
const Variable = "REEVE_TEST_CURATOR"

// programs names the directory of programs that `make test-programs` has built. Without it the program is built here.
const programs = "REEVE_TEST_PROGRAMS"

// Serve starts the program. It serves clusters until stop is called, or this process ends.
func Serve() (stop func() error, err error) {
	// Not below the directory of a test: paths of Unix sockets end at 107 bytes.
	directory, err := os.MkdirTemp("/tmp", "rv")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(directory))
		}
	}()
	program := filepath.Join(os.Getenv(programs), "test", "testcurator")
	if os.Getenv(programs) == "" {
		program = filepath.Join(directory, "testcurator")
		build := exec.Command("go", "build", "-o", program, "github.com/reeveproject/reeve/plugins/curator/cmd/testcurator")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build testcurator: %w: %s", err, text)
		}
	}
	socket := filepath.Join(directory, "s")
	command := exec.Command(program, socket)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start testcurator, which `make test-programs` builds: %w", err)
	}
	stop = func() error {
		_ = stdin.Close()
		_, _ = io.Copy(io.Discard, stdout)
		return errors.Join(command.Wait(), os.RemoveAll(directory))
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("testcurator does not serve: %w", err), stop())
	}
	return stop, os.Setenv(Variable, socket)
}
