package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// How long the tests of one package may take before go ends them with a dump of all goroutines: what is stuck must not hold up everything.
const (
	packageTimeout = 10 * time.Minute
	systemTimeout  = 40 * time.Minute
)

// arguments are those of go for testing the module.
func (m module) arguments(race bool) []string {
	// The vet that go test does by itself was done before, and more of it.
	arguments := []string{"test", "-json", "-vet=off"}
	if race {
		arguments = append(arguments, "-race")
	}
	if m.name == last {
		// These tests run executables that the cache of results does not know of, and measure what takes how long: one package at a time.
		arguments = append(arguments, "-count=1", "-p=1", "-timeout="+systemTimeout.String())
	} else {
		arguments = append(arguments, "-timeout="+packageTimeout.String())
	}
	return append(arguments, "./...")
}

// test runs the tests of the module, adds to the tally, and keeps the events in a file of the directory results.
func (m module) test(ctx context.Context, results string, race bool, total *tally, out io.Writer) (err error) {
	say(out, "test   %s", m.name)
	kept, err := os.Create(filepath.Join(results, strings.ReplaceAll(m.name, "/", "-")+".json"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	command := exec.CommandContext(ctx, "go", m.arguments(race)...)
	command.Dir = m.dir
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	var problems strings.Builder
	command.Stderr = &problems
	if err := command.Start(); err != nil {
		return err
	}
	before := total.failed
	r := newReader(total, out)
	readErr := r.read(io.TeeReader(stdout, kept))
	waitErr := command.Wait()
	r.abandoned()
	if readErr != nil {
		return fmt.Errorf("reading the results: %w", readErr)
	}
	if waitErr != nil && total.failed == before {
		return fmt.Errorf("go test: %w\n%s", waitErr, strings.TrimSpace(problems.String()))
	}
	if r.ran == 0 && total.failed == before {
		return errors.New("no test was run")
	}
	return nil
}
