// bench measures Reeve against the bare parts that it is made of: see package e2e/bench. `make bench` builds what it needs and runs it. It prints a table
// and writes var/bench/results.json. It ends with status 1 if a measure could not be run; a reach that was missed is only shown.
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/measures"
)

func main() {
	run := flag.String("run", "", "a regular expression that chooses measures by their name; empty: all")
	programs := flag.String("bin", "bin", "the directory of the executables")
	work := flag.String("work", "/var/tmp", "the directory, on the disk to measure on, in which everything is made and removed again")
	out := flag.String("out", "var/bench/results.json", "the report")
	nodes := flag.String("nodes", "", "with how many simulated nodes a curator is measured, such as 1000,5000; 1000 is the default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := measure(ctx, *programs, *work, *run, *nodes, os.Stderr)
	if err == nil {
		if err = report.Write(*out); err == nil {
			err = report.Table(os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if report.Failed() || ctx.Err() != nil {
		os.Exit(1)
	}
}

func measure(ctx context.Context, programs, work, selection, nodes string, progress io.Writer) (report *bench.Report, err error) {
	begun := time.Now()
	say := func(format string, arguments ...any) {
		_, _ = fmt.Fprintf(progress, "%4.0f s  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, arguments...))
	}
	if programs, err = filepath.Abs(programs); err != nil {
		return nil, err
	}
	run, tmpfs := measures.RunPlace()
	if !tmpfs {
		say("/dev/shm is no tmpfs: sockets and records of running processes are kept in %s, which costs Reeve more than it does on an installed machine", run)
	}
	bed, err := measures.NewBed(measures.Programs{Directory: programs}, work, run)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	if bed.Nodes, err = numbers(nodes); err != nil {
		return nil, err
	}
	// What was built is measured, whatever lies in the work tree by now.
	version, err := bed.Programs.Version(ctx)
	if err != nil {
		return nil, err
	}
	machine, err := bench.LookAtMachine(bed.Work, version)
	if err != nil {
		return nil, err
	}
	selected, err := bench.Select(measures.All(bed), selection)
	if err != nil {
		return nil, err
	}
	results := bench.Run(ctx, selected, say)
	return &bench.Report{
		Version: bench.Version, Started: begun.UTC(), Seconds: time.Since(begun).Seconds(), Selection: selection, Machine: machine, Results: results,
	}, nil
}

// numbers reads a list of numbers of nodes.
func numbers(list string) (numbers []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		number, err := strconv.Atoi(item)
		if err != nil || number < 1 {
			return nil, fmt.Errorf("-nodes %s: %q is no number of nodes", list, item)
		}
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers, nil
}
