package main

import (
	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/core/genesis"
)

func genesisCommand() *cobra.Command {
	var output, manifestsOf string
	cmd := &cobra.Command{
		Use:   "genesis --output FILE EXECUTABLE...",
		Short: "Make the genesis catalog of the built-in plugins, when they are built",
		Long: "genesis asks each plugin what it is and writes that down with its digest. A node whose parameters name the file makes a cluster of these very\n" +
			"executables only. The plugins are started as whoever calls this, without a sandbox: they are the caller's own.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, executables []string) error {
			made, err := genesis.Make(cmd.Context(), executables, manifestsOf)
			if err != nil {
				return err
			}
			return genesis.Write(output, made)
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "the file to write, such as plugins/"+genesis.FileName)
	cmd.Flags().StringVar(&manifestsOf, "manifests-of", "", "a directory with the same plugins for this machine, where the executables are for another platform")
	_ = cmd.MarkFlagRequired("output")
	return cmd
}
