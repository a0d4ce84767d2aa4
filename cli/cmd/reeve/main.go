// Command reeve is the command line of Reeve.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/reeveproject/reeve/cli/command"
	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/dev"
)

// version is set by the linker.
var version = "unknown"

func main() {
	// A second signal ends the process at once; a node that it runs is then told to stop by the kernel.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	executable, err := os.Executable()
	if err != nil {
		executable = os.Args[0]
	}
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil {
		width = 0
	}
	os.Exit(int(command.Run(ctx, command.Environment{
		Stdin:            os.Stdin,
		Stdout:           os.Stdout,
		Stderr:           os.Stderr,
		StdoutIsTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		Interactive:      term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		Width:            width,
		Now:              time.Now,
		Name:             os.Args[0],
		Executable:       executable,
		Version:          version,
		Places:           dev.HostPlaces(),
		Contexts:         contexts.HostDirectory(),
		Context:          os.Getenv("REEVE_CONTEXT"),
	}, os.Args[1:])))
}
