package command

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/dev"
	"github.com/reeveproject/reeve/cli/doctor"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/setup"
	"github.com/reeveproject/reeve/cli/target"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

func (c *commands) doctor() *cobra.Command {
	var parameters string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can enforce, what it lacks, and what to do",
		Long: `doctor looks at this machine and says what a node can enforce on it, what the machine lacks, what that means, and what to do. It changes nothing.

The directories are those of --parameters or --dir; without either those of ./var/dev or of ` + setup.DefaultFile + `, if they are there, and otherwise
those that a new node would have. Where there are parameters, reeved is asked what it would refuse of them and start without (` + "`reeved check`" + `), before it is started. It fails
if something makes running a node impossible.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			places, file, err := c.doctorPlaces(parameters)
			if err != nil {
				return err
			}
			document := c.checkParameters(cmd.Context(), file, doctor.Judge(doctor.Probe(places)))
			if err := c.print(document); err != nil {
				return err
			}
			if !document.Runnable {
				return fault.New(fault.Failed, "no node can run on this machine as it is", "Do what is advised above where the level is missing, and run `reeve doctor` again.")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&parameters, "parameters", "", "file with the parameters of the node whose directories are checked")
	return cmd
}

// checkParameters adds to findings what reeved would refuse of the parameters in a file; empty: there are none. Where reeved is not beside reeve nothing is added.
func (c *commands) checkParameters(ctx context.Context, file string, document output.Doctor) output.Doctor {
	if file == "" {
		return document
	}
	asked := exec.CommandContext(ctx, c.beside("reeved"), "check", "--parameters", file)
	var refused bytes.Buffer
	asked.Stderr = &refused
	said, err := asked.Output()
	if errors.Is(err, fs.ErrNotExist) {
		return document
	}
	return doctor.WithParameters(document, file, doctor.Said{Lacked: string(said), Refused: refused.String()}, err)
}

// doctorPlaces are the directories to look at, and the file with the parameters that name them; empty: none does.
func (c *commands) doctorPlaces(file string) (places doctor.Places, from string, err error) {
	if file != "" {
		if c.options.Dir != "" {
			return doctor.Places{}, "", fault.New(fault.Usage, "--parameters and --dir name two nodes", "Give one of them.")
		}
		places, err = parameterPlaces(file)
		return places, file, err
	}
	dir := c.options.Dir
	if dir == "" && isDir(target.DefaultDirectory) {
		dir = target.DefaultDirectory
	}
	if dir != "" {
		directory, err := dev.Find(dir)
		switch {
		case err == nil:
			file := directory.ParametersFile()
			return placesOf(directory.Parameters), file, nil
		case fault.CodeOf(err) == fault.Refused:
			return doctor.Places{}, "", err
		case !errors.Is(err, fs.ErrNotExist):
			return doctor.Places{}, "", fault.Wrap(fault.Failed, err, "cannot read the parameters of the node in "+dir, "Correct them, or name others with --parameters.")
		}
		places, err = c.expectedPlaces(dir)
		return places, "", err
	}
	if places, err := parameterPlaces(setup.DefaultFile); err == nil {
		return places, setup.DefaultFile, nil
	}
	if os.Geteuid() == 0 {
		return doctor.Places{Data: filepath.Join(setup.DefaultState, "data"), Run: setup.DefaultRun}, "", nil
	}
	places, err = c.expectedPlaces(target.DefaultDirectory)
	return places, "", err
}

// expectedPlaces are those that a new dev directory would have.
func (c *commands) expectedPlaces(dir string) (doctor.Places, error) {
	data, run, err := c.Places.Expected(dir)
	return doctor.Places{Data: data, Run: run}, err
}

func parameterPlaces(file string) (doctor.Places, error) {
	parameters, err := setup.ReadParameters(file)
	if err != nil {
		return doctor.Places{}, fault.FileOr(fault.Usage, err, "cannot read the parameters", "Give the file that reeved reads with --parameters.")
	}
	return placesOf(parameters), nil
}

func placesOf(parameters *nodev1.Parameters) doctor.Places {
	directories := parameters.GetDirectories()
	return doctor.Places{Data: directories.GetData(), Run: directories.GetRun(), Network: parameters.GetNetwork()}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// doctorDocument is the findings of this machine, for the bundle.
func (c *commands) doctorDocument(ctx context.Context) (output.Doctor, error) {
	places, file, err := c.doctorPlaces("")
	if err != nil {
		return output.Doctor{}, err
	}
	return c.checkParameters(ctx, file, doctor.Judge(doctor.Probe(places))), nil
}
