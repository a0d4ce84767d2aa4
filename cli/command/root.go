package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Environment is all that a command uses of the process that it runs in.
type Environment struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// StdoutIsTerminal says that people look at Stdout.
	StdoutIsTerminal bool
	// Interactive says that somebody can be asked: people write to Stdin and look at Stderr.
	Interactive bool
	// Width is that of the terminal which Stderr is, in columns; 0: it is none.
	Width int
	Now   func() time.Time
	// Name is how reeve was called: in the advice that it gives.
	Name string
	// Executable is the file of reeve: reeved and the built-in plugins lie beside it.
	Executable string
	Version    string
	Places     dev.Places
	// Contexts is the configuration directory of the user; empty: the user has none.
	Contexts string
	// Context is the name of the context that the user usually means (REEVE_CONTEXT).
	Context string
	// HostSocket is the socket of the node that is installed on the machine; empty: target.HostSocket.
	HostSocket string
}

// Run runs a command line, without the name of the program, and returns the exit code. It ends early when ctx does.
func Run(ctx context.Context, environment Environment, arguments []string) fault.Code {
	c := &commands{Environment: environment, format: output.Table, options: target.Options{
		Contexts: contexts.New(environment.Contexts), UsualContext: environment.Context, HostSocket: environment.HostSocket, Now: environment.Now,
	}}
	// Shells show what a completion writes in the middle of a line.
	if len(arguments) == 0 || !strings.HasPrefix(arguments[0], cobra.ShellCompRequestCmd) {
		var once sync.Once // a command may look for its cluster again and again
		c.options.Notice = func(notice string) { once.Do(func() { c.say("reeve: " + notice) }) }
	}
	root := c.root()
	root.SetArgs(arguments)
	err := root.ExecuteContext(ctx)
	if err != nil {
		// Servers say what is in it, and are not to write to the terminal what is no text.
		_, _ = fmt.Fprintf(environment.Stderr, "reeve: %s\n", output.CleanLines(err.Error()))
		for _, line := range fault.Details(err) {
			_, _ = fmt.Fprintln(environment.Stderr, output.CleanLines(line))
		}
	}
	return fault.CodeOf(err)
}

// Tree returns all commands, for those who write about them. They are not to be run.
func Tree() *cobra.Command {
	c := &commands{format: output.Table}
	return c.root()
}

// commands is what all commands share.
type commands struct {
	Environment
	format  output.Format
	options target.Options
}

func (c *commands) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "reeve",
		Short: "Run roles on the machines of a cluster",
		Long: `reeve runs roles on the machines of a cluster.

A command finds its cluster by what is named first here: --dir, --socket or --address; --context; $REEVE_CONTEXT; ./var/dev, if it is there; the
current context; the node that is installed on this machine. Where ./var/dev is taken and one of those after it is there too, the standard error says so.

The result goes to the standard output, as a table, or as a document with -o json or yaml; progress, advice and errors go to the standard error.

Exit codes:
  0  done
  1  failed or timed out
  2  the command line is wrong
  3  a node, role, file or directory that it names does not exist
  4  refused: the caller may not do it, or something else is needed first
  5  the node or the cluster does not answer`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          showHelp,
	}
	root.SetIn(c.Stdin)
	root.SetOut(c.Stdout)
	root.SetErr(c.Stderr)
	// There is one that offers only the shells that are supported.
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.VarP(&c.format, "output", "o", "how to print the result")
	flags.StringVar(&c.options.Dir, "dir", "", "the dev directory of the cluster (default "+target.DefaultDirectory+")")
	flags.StringVar(&c.options.Socket, "socket", "", "the local socket of a node of the cluster, such as "+target.HostSocket)
	flags.StringVar(&c.options.Address, "address", "", "host:port of a curator of the cluster, in place of --dir")
	flags.StringVar(&c.options.Context, "context", "", "the context of the cluster, as `NAME` of `reeve login` (default $REEVE_CONTEXT, or the current one)")
	flags.StringVar(&c.options.CAFile, "ca", "", "file with the certificates of the cluster's CA, with --address")
	flags.StringVar(&c.options.OwnerKeyFile, "owner-key", "", "file with the owner's private key (default D/owner.key with --dir D)")
	complete(root, "output", fixed(output.Formats()...))
	complete(root, "context", c.contextNames)
	_ = root.MarkPersistentFlagDirname("dir")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if given := cmd.Flags().Args(); cmd.HasSubCommands() && len(given) > 0 && !takesArguments(cmd) {
			return showHelp(cmd, given) // the flag is one of a command that does not exist
		}
		return fault.New(fault.Usage, err.Error(), "See `"+cmd.CommandPath()+" --help`.")
	})
	root.AddCommand(c.status(), c.node(), c.ticket(), c.cert(), c.plugin(), c.policy(), c.store(), c.logs(), c.events(), c.describe(), c.wait(), c.dev(), c.init(), c.version(),
		c.doctor(), c.bundle(), c.kubernetes(), c.completion(),
		c.context(), c.ca(), c.login(), c.logout(), c.whoami(), c.operator(), c.audit(), c.owner(), c.recoveryKeyGroup())
	c.finish(root)
	return root
}

// finish adds to a command, and to those below it, what follows from its usage line: how many arguments it takes, and how NODE and ROLE are explained and completed.
func (c *commands) finish(cmd *cobra.Command) {
	for _, inner := range cmd.Commands() {
		c.finish(inner)
	}
	var names []string
	least, most := 0, 0
	for _, name := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(name, "-") || strings.HasPrefix(name, "(") {
			break // flags follow
		}
		names = append(names, name)
		most++
		switch {
		case strings.HasSuffix(name, "...]"):
			most = math.MaxInt
		case !strings.HasPrefix(name, "["):
			least++
		}
	}
	var completers []completer
	switch {
	case len(names) == 0:
	case names[0] == "[NODE]":
		cmd.Long += "\n\n" + nodeArgument + " Without it: the local node, or the cluster's only one."
		completers = []completer{c.nodeNames}
	case names[0] == "NODE":
		cmd.Long += "\n\n" + nodeArgument
		if completers = []completer{c.nodeNames}; most > 1 && names[1] == "ROLE" {
			completers = append(completers, c.roleNames)
		}
	}
	if cmd.Args == nil {
		cmd.Args = arguments(least, most)
	}
	if cmd.ValidArgsFunction == nil && (most == 0 || completers != nil) {
		completeArguments(cmd, completers...)
	}
}

// takesArguments reports whether a command that holds others does something by itself, too.
func takesArguments(cmd *cobra.Command) bool { return strings.Contains(cmd.Use, " ") }

// group is a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: showHelp}
	command.AddCommand(commands...)
	return command
}

// removed are commands of former versions, each with the one that does the same.
var removed = map[string]string{"reeve role": "reeve node role", "reeve node show": "reeve describe node"}

// showHelp is what a command does that only holds others: arguments are the name of one that it does not hold.
func showHelp(cmd *cobra.Command, arguments []string) error {
	if len(arguments) > 0 {
		next := "See `" + cmd.CommandPath() + " --help`."
		if stays := removed[cmd.CommandPath()+" "+arguments[0]]; stays != "" {
			next = "Use `" + stays + "`: it does the same."
		}
		return fault.New(fault.Usage, fmt.Sprintf("%s has no command %q", cmd.CommandPath(), arguments[0]), next)
	}
	return cmd.Help()
}

// arguments checks how many arguments a command has. The error shows the names in its usage line.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) >= least && len(given) <= most {
			return nil
		}
		_, names, _ := strings.Cut(cmd.Use, " ")
		if names == "" {
			names = "no arguments"
		}
		return fault.New(fault.Usage, fmt.Sprintf("%s takes %s", cmd.CommandPath(), names), "See `"+cmd.CommandPath()+" --help`.")
	}
}

// onCluster is a command that works with the cluster of the command line.
func (c *commands) onCluster(do func(context.Context, *target.Target, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		return c.withTarget(cmd.Context(), func(cluster *target.Target) error { return do(cmd.Context(), cluster, given) })
	}
}

// onNode is a command that works with the node that its first argument names; without one, with the local node, or the only one.
func (c *commands) onNode(do func(context.Context, *target.Target, target.Node, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		return c.withFound(cmd.Context(), optional(given), func(cluster *target.Target, node target.Node) error {
			return do(cmd.Context(), cluster, node, given)
		})
	}
}

// onNodeAPI is onNode with the node's own API.
func (c *commands) onNodeAPI(do func(context.Context, nodev1.NodeServiceClient, target.Node, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		return c.withNode(cmd.Context(), optional(given), func(api nodev1.NodeServiceClient, node target.Node) error {
			return do(cmd.Context(), api, node, given)
		})
	}
}

// withTarget runs do with the cluster of the command line.
func (c *commands) withTarget(ctx context.Context, do func(*target.Target) error) error {
	cluster, err := target.Open(ctx, c.options)
	if err != nil {
		return err
	}
	return errors.Join(do(cluster), cluster.Close())
}

// answer prints a document, unless err says why there is none.
func (c *commands) answer(document output.Document, err error) error {
	if err != nil {
		return err
	}
	return c.print(document)
}

func (c *commands) print(document output.Document) error {
	return output.Print(c.Stdout, c.format, document, c.Now())
}

func (c *commands) say(line string) {
	_, _ = fmt.Fprintln(c.Stderr, line)
}

// beside returns the path of a file that lies in the same directory as reeve.
func (c *commands) beside(name string) string {
	executable := c.Executable
	if resolved, err := filepath.EvalSymlinks(executable); err == nil {
		executable = resolved
	}
	return filepath.Join(filepath.Dir(executable), name)
}

// advice is how the reader would call reeve for the same cluster.
func (c *commands) advice(dir string) string {
	call := c.Name
	same := func(a, b string) bool {
		one, err1 := os.Stat(a)
		other, err2 := os.Stat(b)
		return err1 == nil && err2 == nil && os.SameFile(one, other)
	}
	if dir != "" && !same(dir, target.DefaultDirectory) {
		call += " --dir " + dir
	}
	return call
}
