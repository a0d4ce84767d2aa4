// reeve-conformance runs the conformance suite on a plugin's executable and prints the report as JSON. `reeve plugin test` runs it and also prints
// the report for people: reeve itself does not contain the suite.
//
// The report goes to standard output, progress to standard error (-progress). The exit status is 0 if the plugin conforms, 1 if it does not or the
// run was interrupted, 2 if the command line is wrong or this machine cannot run the suite. SIGINT, SIGTERM and, with -stdin, the end of standard
// input end the run early, after everything that was started has ended.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/reeveproject/reeve/sdk/conformance"
	"github.com/reeveproject/reeve/sdk/conformance/store"
)

func main() { os.Exit(run()) }

// beside returns the reeved in this program's directory; empty if there is none.
func beside() string {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	path := filepath.Join(filepath.Dir(self), "reeved")
	if info, statErr := os.Stat(path); err != nil || statErr != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The reader of the progress may be killed. Then the suite must end what it has started instead of dying of its next line.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	config := conformance.Config{Configurations: make(map[string]string), Store: store.Open}
	flags := flag.NewFlagSet("reeve-conformance", flag.ContinueOnError)
	flags.Func("configuration", "ROLE=FILE: start the role with the configuration in the file (may be repeated)", func(text string) error {
		role, file, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want ROLE=FILE")
		}
		content, err := os.ReadFile(file)
		config.Configurations[role] = string(content)
		return err
	})
	flags.Func("check", "`ID`: run only this check, and those that it needs (may be repeated)", func(text string) error {
		config.Checks = append(config.Checks, text)
		return nil
	})
	flags.StringVar(&config.Reeved, "reeved", beside(), "the `FILE` of reeved, which has the sandbox of nodes; empty: none, and what needs one is not run")
	progress := flags.Bool("progress", false, "tell on the standard error of every check that has ended")
	stdin := flags.Bool("stdin", false, "end when the standard input does")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: reeve-conformance [flags] PLUGIN")
		flags.PrintDefaults()
	}
	if err := flags.Parse(os.Args[1:]); err != nil {
		return 2
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	config.Executable = flags.Arg(0)
	if *progress {
		config.Ended = func(result conformance.Result) {
			fmt.Fprintf(os.Stderr, "%-8s %s\n", result.Status, result.Check)
		}
	}
	if *stdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	report, err := conformance.Test(ctx, config)
	if err == nil {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reeve-conformance:", err)
		return 2
	}
	if !report.Conforms() {
		return 1
	}
	return 0
}
