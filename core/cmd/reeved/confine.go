package main

import (
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/confine"
	"github.com/reeveproject/reeve/core/node"
	"github.com/reeveproject/reeve/core/sandbox"
	protocol "github.com/reeveproject/reeve/proto/confine"
)

func confineCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "confine",
		Short: "Run one executable in the sandbox of a role, for the conformance suite",
		Long: "confine reads a request from its standard input, runs the executable that it names, and writes answers to file descriptor 3. When the standard input ends, confine\n" +
			"kills everything that it started. `reeve plugin test` uses it to run a role in the sandbox of a node. As root, confine runs the process as a reserved user.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			unix.CloseOnExec(protocol.AnswersFD) // the processes that confine starts must not be able to answer
			return confine.Run(cmd.Context(), confine.Config{
				Log: hclog.NewNullLogger(), Requests: os.Stdin, Answers: os.NewFile(protocol.AnswersFD, "answers"), Stdout: os.Stdout, Stderr: os.Stderr,
				Ranges: node.UIDRanges, Defaults: sandbox.DefaultsOf(nil),
			})
		},
	}
}
