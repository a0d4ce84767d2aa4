// reeve-conformance runs the conformance suite on a plugin's executable and prints the report as JSON. It is what `reeve plugin test` runs, which prints the
// report for people too: reeve itself does not carry the suite.
//
// The report goes to the standard output, what is being done to the standard error (-progress). It ends with 0 if the plugin conforms, with 1 if it does not or
// the run was interrupted, with 2 if the command line is wrong or this machine cannot run the suite. SIGINT, SIGTERM and, with -stdin, the end of the standard input
// end the run early; whatever was launched is then ended first.
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

// beside is the reeved that lies beside this program; empty: there is none.
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
	// Who reads what is being done may be killed. The suite is then to end what it has launched, and not to die of its next line.
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
