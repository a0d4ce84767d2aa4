package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/core/node"
)

func check() *cobra.Command {
	var place place
	cmd := &cobra.Command{
		Use:   "check [--parameters FILE]",
		Short: "Say what a start with the parameters would be refused for and would go on without, and change nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := place.find(cmd)
			if err != nil {
				return err
			}
			problems, lacks := node.Check(cmd.Context(), found.Parameters, found.File)
			// `reeve doctor` reads these lines.
			for _, lack := range lacks {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), "warning: the node starts without this:", lack); err != nil {
					return err
				}
			}
			if len(problems)+len(lacks) > 0 {
				return errors.Join(problems...)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), found.File+": nothing is wrong with the parameters, the directories and the machine")
			return err
		},
	}
	place.flags(cmd)
	return cmd
}
