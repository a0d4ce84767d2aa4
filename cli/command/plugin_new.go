package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
	"github.com/reeveproject/reeve/cli/scaffold"
)

func (c *commands) pluginNew() *cobra.Command {
	plugin := scaffold.Plugin{}
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the Go module of a new plugin",
		Long: `new writes a Go module with a plugin that has one role, in a directory of the plugin's name: the role, a test of it over the real protocol, the conformance suite as a
test, a Makefile, a README and a workflow for CI. It builds, passes its tests and conforms as it is written.

Until the SDK is published a plugin is built against a checkout of Reeve, which the replace lines of its go.mod name: that of --reeve, or the one in which this executable
or the working directory lies. The versions of all other modules are the checkout's.`,
		Example: `  reeve plugin new lighthouse
  reeve plugin new lighthouse --store --module git.example.net/harbour/lighthouse`,
		RunE: func(_ *cobra.Command, given []string) error {
			plugin.Name = given[0]
			return c.newPlugin(plugin)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&plugin.Directory, "directory", "", "`directory` to write, which is not there yet or empty (default NAME)")
	flags.StringVar(&plugin.Module, "module", "", "`path` of the Go module (default example.com/NAME)")
	flags.StringVar(&plugin.Checkout, "reeve", "", "`directory` of the checkout of Reeve to build against")
	flags.BoolVar(&plugin.Store, "store", false, "the role keeps something in the consensus store")
	return cmd
}

func (c *commands) newPlugin(plugin scaffold.Plugin) error {
	if plugin.Checkout == "" {
		if here, err := os.Getwd(); err == nil {
			plugin.Checkout = scaffold.Checkout(filepath.Dir(c.beside("reeve")), here)
		}
	}
	if plugin.Checkout == "" {
		return fault.New(fault.Usage, "there is no checkout of Reeve around this executable and the working directory", "Name one by --reeve: until the SDK is published, a plugin is built against a checkout.")
	}
	directory := plugin.Directory
	if directory == "" {
		directory = plugin.Name
		plugin.Directory = directory
	}
	files, err := scaffold.Write(plugin)
	var problem *scaffold.Problem
	switch {
	case errors.As(err, &problem):
		return fault.New(fault.Usage, problem.Summary, problem.Advice)
	case err != nil:
		return fault.New(fault.Failed, fmt.Sprintf("cannot write the plugin %s: %v", plugin.Name, err), "No file was written to "+directory+".")
	}
	return c.print(output.NewModule{Plugin: plugin.Name, Directory: directory, Files: files})
}
