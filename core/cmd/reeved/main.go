// Command reeved is the core of a Reeve node.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/core/node"
	"github.com/reeveproject/reeve/core/params"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// version is set when the program is built.
var version = "0.0.0-dev"

// parametersInDirectory is where `reeve dev up` keeps the parameters of the node in a dev directory.
const parametersInDirectory = "reeved.yaml"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "reeved: "+err.Error())
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var file string
	root := &cobra.Command{
		Use:   "reeved --parameters FILE",
		Short: "The core of a Reeve node",
		Long: "reeved runs a node of a Reeve cluster: it opens the node's storage, takes the node to its cluster and runs its roles.\n" +
			"SIGTERM and SIGINT stop the roles and then the core.",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return errors.New("no parameters: say `reeved --parameters FILE`, or use `reeve dev up` to try a cluster on this machine")
			}
			parameters, err := params.Load(file)
			if err != nil {
				return err
			}
			return node.Run(cmd.Context(), node.Config{Log: logger(parameters.GetLog()), Parameters: parameters, Version: version})
		},
	}
	root.Flags().StringVar(&file, "parameters", "", "the parameters of the node, as YAML or JSON")
	root.AddCommand(reap())
	return root
}

func reap() *cobra.Command {
	var file, directory string
	cmd := &cobra.Command{
		Use:   "reap (--parameters FILE | --dir D)",
		Short: "Stop the roles that a core which is gone for good left running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if directory != "" {
				file = filepath.Join(directory, parametersInDirectory)
			}
			parameters, err := params.Load(file)
			if err != nil {
				return err
			}
			return node.Reap(cmd.Context(), parameters, logger(parameters.GetLog()))
		},
	}
	cmd.Flags().StringVar(&file, "parameters", "", "the parameters of the node")
	cmd.Flags().StringVar(&directory, "dir", "", "the dev directory of the node")
	cmd.MarkFlagsOneRequired("parameters", "dir")
	cmd.MarkFlagsMutuallyExclusive("parameters", "dir")
	return cmd
}

func logger(log *nodev1.Log) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "reeved", Level: hclog.LevelFromString(log.GetLevel()), JSONFormat: log.GetJson(), Output: os.Stderr,
	})
}
