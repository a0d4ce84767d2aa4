package main

import (
	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/core/genesis"
)

func genesisCommand() *cobra.Command {
	var output, manifestsOf, reports string
	cmd := &cobra.Command{
		Use:   "genesis --output FILE EXECUTABLE...",
		Short: "Make the genesis catalog of the built-in plugins, when they are built",
		Long: "genesis asks each plugin what it is and writes that down with its digest. A node whose parameters name the file makes a cluster of these very\n" +
			"executables only. The plugins are started as whoever calls this, without a sandbox: they are the caller's own.\n\n" +
			"--reports takes signed reports of the conformance suite on these executables into it, which the cluster then has from its start.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, executables []string) error {
			made, err := genesis.Make(cmd.Context(), executables, manifestsOf)
			if err != nil {
				return err
			}
			if reports != "" {
				others, err := genesis.AddReports(made, reports)
				if err != nil {
					return err
				}
				for _, other := range others {
					cmd.PrintErrf("%s is about another build, and is left out: make it anew with `reeve plugin test --report`\n", other)
				}
			}
			return genesis.Write(output, made)
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "the file to write, such as plugins/"+genesis.FileName)
	cmd.Flags().StringVar(&manifestsOf, "manifests-of", "", "a directory with the same plugins for this machine, where the executables are for another platform")
	cmd.Flags().StringVar(&reports, "reports", "", "a directory with signed reports (`reeve plugin test --report`), all by one key")
	_ = cmd.MarkFlagRequired("output")
	return cmd
}
