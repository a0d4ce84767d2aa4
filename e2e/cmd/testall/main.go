package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	race := flag.Bool("race", true, "run the tests with the race detector")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := testAll(ctx, ".", *race, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// testAll tests the workspace that a directory lies in, and reports to out. It returns whether everything is well; an error says that the tests
// could not be run at all.
func testAll(ctx context.Context, dir string, race bool, out io.Writer) (bool, error) {
	w, err := findWorkspace(ctx, dir)
	if err != nil {
		return false, err
	}
	results := filepath.Join(w.root, "var", "test")
	if err := os.MkdirAll(results, 0o755); err != nil {
		return false, err
	}
	if err := forgetTables(results); err != nil {
		return false, err
	}
	var total tally
	for _, m := range w.modules {
		say(out, "check  %s", m.name)
		for _, problem := range m.check(ctx) {
			total.problem("%s: %v", m.name, problem)
		}
	}
	for _, m := range w.modules {
		if ctx.Err() != nil {
			break
		}
		if err := m.test(ctx, results, race, &total, out); err != nil {
			total.problem("%s: %v", m.name, err)
		}
	}
	if ctx.Err() != nil {
		total.problem("interrupted: %v", context.Cause(ctx))
	}
	printTables(results, &total, out)
	return total.print(out), nil
}

func say(out io.Writer, format string, arguments ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", arguments...)
}

// firstOf returns the first error that is not nil.
func firstOf(problems ...error) error {
	for _, err := range problems {
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoWorkspace = errors.New("there is no go.work")
