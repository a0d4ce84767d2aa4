package main

import (
	"errors"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/core/params"
)

// parametersInDirectory is where `reeve dev up` keeps the parameters of the node in a dev directory.
const parametersInDirectory = "reeved.yaml"

// place is what the command line says of where the parameters are.
type place struct{ file, system, directory string }

// flags gives a command the flags for it.
func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.file, "parameters", "", "the parameters of the node, as YAML, JSON or protobuf")
	cmd.Flags().StringVar(&p.system, "system", params.SystemDirectory, "the directory where they are looked for last, as parameters.yaml, .json or .pb")
}

// find finds and reads the parameters.
func (p *place) find(cmd *cobra.Command) (*params.Found, error) {
	if p.directory != "" {
		p.file = filepath.Join(p.directory, parametersInDirectory)
	} else if p.file == "" && cmd.Flags().Changed("parameters") {
		// A variable that is not set, most often. Parameters from anywhere else would be those of another node.
		return nil, errors.New("--parameters names no file: name one, or leave it out to have the parameters found")
	}
	return params.Places{CommandLine: p.file, Firmware: params.FirmwareFile, System: p.system}.Find()
}

// tell says in the log where the parameters are from, and which were not read.
func tell(log hclog.Logger, found *params.Found) {
	log.Info("parameters", "from", found.File)
	for _, other := range found.Others {
		log.Warn("there are other parameters, which are not read", "at", other, "since", found.File+" comes before")
	}
}
