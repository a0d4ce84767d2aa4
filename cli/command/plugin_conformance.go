package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/output"
)

// suiteProgram runs the conformance suite. It lies beside reeve, which does not carry the suite itself.
const suiteProgram = "reeve-conformance"

// reportFormat is how `reeve plugin test` prints its report: as every document, or for what runs tests.
type reportFormat struct {
	*output.Format
	junit bool
}

// Set implements the value of a flag.
func (f *reportFormat) Set(text string) error {
	f.junit = text == "junit"
	if f.junit {
		return nil
	}
	if f.Format.Set(text) != nil {
		return fmt.Errorf("%q is not a format: it is table, json, yaml or junit", text)
	}
	return nil
}

// Type implements the value of a flag.
func (f *reportFormat) Type() string { return "table|json|yaml|junit" }

// testOptions are the flags of `reeve plugin test`.
type testOptions struct {
	configurations []string
	// checks are those to run; empty: all.
	checks []string
	quiet  bool
	// report is where the signed report goes, key the file with the key that signs it.
	report, key string
}

func (c *commands) pluginTest() *cobra.Command {
	format := &reportFormat{Format: &c.format}
	var options testOptions
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Test whether a plugin behaves as the role protocol demands",
		Long: `test runs the conformance suite on the executable FILE, with no cluster: it starts the plugin's roles many times against a host of its own, and says of every
check whether the plugin passes it, and of every profile whether the plugin conforms. docs/reference/conformance.md lists the checks.

The plugin runs as you, and only the isolation checks use a sandbox: test only what you are willing to run. The plugin can read every file that you can read, the key that signs the
report included. Test a plugin that you do not trust as another user.

reeved, which lies beside reeve, makes the sandbox. If reeved is missing, or this machine cannot enforce the sandbox, the isolation checks are not run. When the command ends,
also by Ctrl-C, it ends everything that it started.

A check is skipped only where the manifest declares that the plugin does not have what it is about. One that is not run, because another one failed that it needs or
because the run was interrupted, is never a pass.

A role is started without a configuration, or with one that is made by its schema if that requires something; --configuration gives another.

--check runs only the check with that ID, and those that it needs, which is quick while one mends what it has found; the command then fails if one of them does not pass. The report
is Incomplete, as it says nothing of the others.

--report writes what was found, also of a plugin that does not conform, signed by your key: the one of --key, or the one by which you prove yourself to the
cluster. reeve plugin add --report gives it to the cluster with the plugin.`,
		Example: `  reeve plugin test ./lighthouse
  reeve plugin test ./lighthouse -o junit > report.xml
  reeve plugin test ./lighthouse --configuration lighthouse=lighthouse.json
  reeve plugin test ./lighthouse --check lifecycle.stop
  reeve plugin test ./lighthouse --report lighthouse.report --key alice.key`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.testPlugin(cmd.Context(), given[0], options, format)
		},
	}
	flags := cmd.Flags()
	flags.VarP(format, "output", "o", "how to print the report")
	flags.StringArrayVar(&options.configurations, "configuration", nil, "start a role with the configuration in a file: `ROLE=FILE`; may be repeated")
	flags.StringArrayVar(&options.checks, "check", nil, "run only the check with this `ID`, and those that it needs; may be repeated")
	flags.BoolVarP(&options.quiet, "quiet", "q", false, "do not tell of the checks while they are run")
	flags.StringVar(&options.report, "report", "", "write the signed report to `FILE`")
	flags.StringVar(&options.key, "key", "", "`FILE` with the private key that signs the report (default: your own, as it is known)")
	complete(cmd, "output", fixed(append(output.Formats(), "junit")...))
	return cmd
}

func (c *commands) testPlugin(ctx context.Context, file string, options testOptions, format *reportFormat) error {
	program := c.beside(suiteProgram)
	arguments := []string{"-stdin"}
	if !options.quiet {
		arguments = append(arguments, "-progress")
	}
	for _, configuration := range options.configurations {
		if role, path, ok := strings.Cut(configuration, "="); !ok || role == "" || path == "" {
			return fault.New(fault.Usage, fmt.Sprintf("--configuration %q: want ROLE=FILE", configuration), "See `reeve plugin test --help`.")
		}
		arguments = append(arguments, "-configuration", configuration)
	}
	for _, check := range options.checks {
		arguments = append(arguments, "-check", check)
	}
	signing, err := c.newSigning(options)
	if err != nil {
		return err
	}
	report, err := c.runSuite(ctx, program, append(arguments, "--", file))
	if err != nil {
		return err
	}
	if format.junit {
		err = report.PrintJUnit(c.Stdout)
	} else {
		err = c.print(report)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fault.New(fault.Failed, "the run was interrupted", "The report says what was found by then.")
	}
	if signing != nil {
		if err := signing.write(file, report); err != nil {
			return err
		}
		c.say("The signed report is in " + options.report + ".")
	}
	if len(options.checks) > 0 {
		if failed := report.Unmet(options.checks); len(failed) > 0 {
			return fault.New(fault.Failed, file+" does not pass "+strings.Join(failed, ", "), "The report says what was seen of it, and what the checks demand.")
		}
		return nil
	}
	if !report.Conforms() {
		return fault.New(fault.Failed, file+" does not conform", "The report says which checks failed, and what they demand.")
	}
	return nil
}

// runSuite runs the program of the suite, and returns its report. When ctx ends the program is asked to end, and waited for: it has others to end. Should reeve itself be
// killed, the end of its standard input tells it.
func (c *commands) runSuite(ctx context.Context, program string, arguments []string) (output.Conformance, error) {
	var report output.Conformance
	suite := exec.CommandContext(ctx, program, arguments...)
	suite.Cancel = func() error { return suite.Process.Signal(syscall.SIGTERM) }
	// Ctrl-C reaches everybody in the terminal's group; reeve tells it further, once.
	suite.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var document strings.Builder
	suite.Stdout, suite.Stderr = &document, cleaned{c.Stderr}
	alive, err := suite.StdinPipe()
	if err != nil {
		return report, err
	}
	if err := suite.Start(); err != nil {
		return report, fault.Wrap(fault.NotFound, err, "cannot start the conformance suite", "It is the program "+suiteProgram+", which lies beside reeve: build or install both together.")
	}
	ended := suite.Wait()
	_ = alive.Close()
	err = json.Unmarshal([]byte(document.String()), &report)
	if err == nil && len(report.Results) == 0 {
		err = errors.New("the report is empty")
	}
	if err != nil {
		// How it ended says more than that its report is no JSON, if it did not mean to end so.
		return report, fault.Wrap(fault.Failed, errors.Join(ended, err), "the conformance suite has made no report", "What it said is above.")
	}
	return report, nil
}

// cleaned passes lines on, without what moves a cursor: they may quote a plugin.
type cleaned struct{ to io.Writer }

func (c cleaned) Write(text []byte) (int, error) {
	_, err := io.WriteString(c.to, output.CleanLines(string(text)))
	return len(text), err
}
