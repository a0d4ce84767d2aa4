// Command reeved is the core of a Reeve node.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/diskguard"
	"github.com/reeveproject/reeve/core/logfile"
	"github.com/reeveproject/reeve/core/node"
	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/storage"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// version is set when the program is built.
var version = "0.0.0-dev"

// The main goroutine keeps the process's first thread to itself: what the core does to a thread in order to launch a role in its sandbox must never be done
// to that one, whose entry in /proc is that of the whole process.
func init() { runtime.LockOSThread() }

func main() {
	ctx, leave := context.WithCancelCause(context.Background())
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	leaveOn(syscall.SIGUSR1, leave)
	// Another Ctrl-C ends the process at once, as people expect of one that takes long to stop: the next start, or `reeved reap`, stops its roles.
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "reeved: "+err.Error())
		os.Exit(1)
	}
}

// leaveOn has a signal end the core and leave its roles running, for the core that comes next.
func leaveOn(wanted os.Signal, leave context.CancelCauseFunc) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, wanted)
	go func() {
		<-signals
		leave(node.ErrLeave)
	}()
}

func command() *cobra.Command {
	var place place
	var again bool
	root := &cobra.Command{
		Use:   "reeved [--parameters FILE]",
		Short: "The core of a Reeve node",
		Long: "reeved runs a node of a Reeve cluster: it opens the node's storage, takes the node to its cluster and runs its roles.\n" +
			"SIGTERM and SIGINT stop the roles and then the core. SIGUSR1 stops the core alone: its roles run on, and the next reeved goes on with\n" +
			"them, as it does after a crash. That is how reeved is upgraded.\n" +
			"Its parameters are those of --parameters; else those that qemu gives to the machine (opt/dev.reeve/parameters); else the file\n" +
			"parameters.yaml, parameters.json or parameters.pb of the system directory.",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := place.find(cmd)
			if err != nil {
				return err
			}
			parameters := found.Parameters
			terminal := besideLog(parameters.GetLog().GetFile())
			log, done, err := logger(parameters.GetLog())
			if err != nil {
				return err
			}
			tell(log, found)
			err = errors.Join(run(cmd.Context(), log, found, again), done())
			if err != nil && terminal != nil {
				_, _ = fmt.Fprintln(terminal, "reeved: "+err.Error())
			}
			return err
		},
	}
	place.flags(root)
	root.Flags().BoolVar(&again, "again", false, "let the parameters make a node once more, which gives up the one that they made before")
	root.AddCommand(reap(), check(), restoreCommand(), genesisCommand(), confineCommand())
	return root
}

func reap() *cobra.Command {
	var place place
	cmd := &cobra.Command{
		Use:   "reap [--parameters FILE | --dir D]",
		Short: "Stop the roles that a core which is gone for good left running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := place.find(cmd)
			if err != nil {
				return err
			}
			parameters := found.Parameters
			// It is run by hand: what it says belongs onto the terminal, not into the log of the core.
			log, _, err := logger(&nodev1.Log{Level: parameters.GetLog().GetLevel()})
			if err != nil {
				return err
			}
			tell(log, found)
			return node.Reap(cmd.Context(), parameters, log)
		},
	}
	place.flags(cmd)
	cmd.Flags().StringVar(&place.directory, "dir", "", "the dev directory of the node")
	cmd.MarkFlagsMutuallyExclusive("parameters", "dir")
	cmd.MarkFlagsMutuallyExclusive("system", "dir")
	return cmd
}

// withoutDumps has the kernel dump nothing of this process, nor of the roles, which inherit it: what is in the memory of a node does not belong into a file
// that nobody guards. 1 is too little for a file, and has the kernel start no handler either, which it does with 0; what is bounded to 0 already stays so.
func withoutDumps() error {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &now); err != nil {
		return err
	}
	bound := min(1, now.Max)
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: bound, Max: bound})
}

// run runs the node. Why it ended is in the log too, which is not always what is read by whoever started it.
func run(ctx context.Context, log hclog.Logger, found *params.Found, again bool) error {
	if err := withoutDumps(); err != nil {
		return fmt.Errorf("core dumps cannot be turned off (RLIMIT_CORE), and one would hold the node's keys: %w", err)
	}
	err := node.Run(ctx, node.Config{Log: log, Parameters: found.Parameters, ParametersFile: found.File, Again: again, Version: version})
	if diskguard.Refuses(err) && !strings.Contains(err.Error(), storage.Repair) {
		err = fmt.Errorf("%w: a file system that the node needs takes no writes, since it was mounted read-only or has met an error: %s", err, storage.Repair)
	}
	if err != nil && found.Parameters.GetLog().GetFile() != "" {
		log.Error("reeved ends", "error", err)
	}
	return err
}

// besideLog returns the standard error as it is before the log file takes its place, so that whoever started reeved by hand is told there why it ended. It is
// nil if it is the log file already, which is not to be held open when it is rotated, or if there is no log file.
func besideLog(path string) *os.File {
	if path == "" {
		return nil
	}
	now, err := os.Stderr.Stat()
	if err != nil {
		return nil
	}
	if file, err := os.Stat(path); err == nil && os.SameFile(now, file) {
		return nil
	}
	fd, err := unix.FcntlInt(os.Stderr.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "stderr")
}

// logger returns what the log is written to, and what closes it.
func logger(log *nodev1.Log) (logger hclog.Logger, done func() error, err error) {
	var output io.Writer = os.Stderr
	done = func() error { return nil }
	if path := log.GetFile(); path != "" {
		file, err := logfile.Open(path, logfile.WithStandardError())
		if err != nil {
			return nil, nil, fmt.Errorf("the log cannot be written: %w; correct log.file in the parameters", err)
		}
		output, done = file, file.Close
	}
	return hclog.New(&hclog.LoggerOptions{
		Name: "reeved", Level: hclog.LevelFromString(log.GetLevel()), JSONFormat: log.GetJson(), Output: output,
	}), done, nil
}
