// Package build makes the programs that the tests run, out of the workspace, as `make build` does.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// module is what the import paths of all of ours begin with.
const module = "github.com/reeveproject/reeve/"

// Variable names the directory of programs that `make build` has built. Without it each package of tests builds them for itself.
const Variable = "REEVE_TEST_PROGRAMS"

// Flags are those of `make build`: with others everything would be compiled a second time.
var Flags = []string{"-trimpath", "-buildvcs=false"}

// Programs are the built programs, laid out as in bin/.
type Programs struct {
	// Workspace is the directory of go.work.
	Workspace string
	// Directory is where the programs are.
	Directory string
}

// group is what is built into one directory.
type group struct {
	into     string
	packages []string
}

// groups are all programs.
func (p *Programs) groups() []group {
	return []group{
		{p.Directory, []string{"core/cmd/reeved", "cli/cmd/reeve", "sdk/conformance/cmd/reeve-conformance"}},
		{p.Plugins(), []string{"plugins/consensus", "plugins/curator", "plugins/hostsfile"}},
		{filepath.Join(p.Directory, "examples"), []string{"examples/lighthouse"}},
	}
}

// ForTests puts every program that tests run into a directory: a copy of those that are built, or new ones. It is a copy since roles of every user must
// be able to pass through the directory.
func ForTests(ctx context.Context, workspace, directory string) (*Programs, error) {
	built := os.Getenv(Variable)
	if built == "" {
		return All(ctx, workspace, directory)
	}
	p := &Programs{Workspace: workspace, Directory: directory}
	files := []string{"reeve", "reeved", "reeve-conformance", "examples/lighthouse", "failpoints/reeved", "failpoints/plugins/consensus", "failpoints/plugins/curator",
		"plugins/consensus", "plugins/curator", "plugins/hostsfile", "plugins/genesis.json"}
	for _, file := range files {
		if err := copyFile(filepath.Join(built, file), filepath.Join(directory, file)); err != nil {
			return nil, fmt.Errorf("copy the programs of %s, which make build test-programs makes: %w", Variable, err)
		}
	}
	return p, nil
}

// copyFile copies a file with its mode, and makes the directory that it goes into.
func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// All builds every program of the workspace into a directory. workspace is the directory of go.work.
func All(ctx context.Context, workspace, directory string) (*Programs, error) {
	p := &Programs{Workspace: workspace, Directory: directory}
	if err := p.build(ctx, Flags, p.groups()); err != nil {
		return nil, err
	}
	return p, p.makeGenesis(ctx)
}

// failpoints are the flags for a program that can be stopped.
var failpoints = []string{"-tags", "failpoints"}

// WithFailpoints builds the core, consensus and curator so that they can be stopped at every step on their way. The others are as they were.
func (p *Programs) WithFailpoints(ctx context.Context) (*Programs, error) {
	stopped := &Programs{Workspace: p.Workspace, Directory: filepath.Join(p.Directory, "failpoints")}
	if !areThere(stopped.Reeved(), stopped.Plugin("consensus"), stopped.Plugin("curator")) {
		err := stopped.build(ctx, append(slices.Clone(Flags), failpoints...), []group{
			{stopped.Directory, []string{"core/cmd/reeved"}},
			{stopped.Plugins(), []string{"plugins/consensus", "plugins/curator"}},
		})
		if err != nil {
			return nil, err
		}
	}
	for from, to := range map[string]string{p.Reeve(): stopped.Reeve(), p.Plugin("hostsfile"): stopped.Plugin("hostsfile"), p.Lighthouse(): stopped.Lighthouse()} {
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.Link(from, to); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return stopped, stopped.makeGenesis(ctx)
}

func areThere(paths ...string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool { _, err := os.Stat(path); return err != nil })
}

func (p *Programs) build(ctx context.Context, flags []string, groups []group) error {
	for _, group := range groups {
		if err := os.MkdirAll(group.into, 0o755); err != nil {
			return err
		}
		arguments := append([]string{"build"}, flags...)
		arguments = append(arguments, "-o", group.into+"/")
		for _, name := range group.packages {
			arguments = append(arguments, module+name)
		}
		// The tests of this module may run outside of the workspace; the programs are always those of the workspace.
		if err := Go(ctx, p.Workspace, []string{"GOWORK=" + filepath.Join(p.Workspace, "go.work")}, arguments...); err != nil {
			return err
		}
	}
	return nil
}

func (p *Programs) makeGenesis(ctx context.Context) error {
	command := exec.CommandContext(ctx, p.Reeved(), "genesis", "--output", p.Genesis(), p.Plugin("consensus"), p.Plugin("curator"), p.Plugin("hostsfile"))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("make the genesis catalog: %w: %s", err, output)
	}
	return nil
}

// Failpoints builds the core alone so that it can be stopped at every step on its way, and says which it takes, and returns the program.
func (p *Programs) Failpoints(ctx context.Context) (string, error) {
	directory := filepath.Join(p.Directory, "failpoints")
	program := filepath.Join(directory, "reeved")
	if areThere(program) {
		return program, nil
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", err
	}
	arguments := append([]string{"build"}, Flags...)
	arguments = append(append(arguments, failpoints...), "-o", directory+"/", module+"core/cmd/reeved")
	return program, Go(ctx, p.Workspace, []string{"GOWORK=" + filepath.Join(p.Workspace, "go.work")}, arguments...)
}

// Genesis is the genesis catalog of the built-in plugins.
func (p *Programs) Genesis() string { return filepath.Join(p.Plugins(), "genesis.json") }

// Reeve is the command line.
func (p *Programs) Reeve() string { return filepath.Join(p.Directory, "reeve") }

// Reeved is the core.
func (p *Programs) Reeved() string { return filepath.Join(p.Directory, "reeved") }

// Plugins is the directory of the built-in plugins.
func (p *Programs) Plugins() string { return filepath.Join(p.Directory, "plugins") }

// Plugin is a built-in plugin.
func (p *Programs) Plugin(name string) string { return filepath.Join(p.Plugins(), name) }

// Lighthouse is the third party's example.
func (p *Programs) Lighthouse() string { return filepath.Join(p.Directory, "examples", "lighthouse") }

// Go runs the go command in a directory, with further variables in its environment.
func Go(ctx context.Context, directory string, environment []string, arguments ...string) error {
	_, err := Output(ctx, directory, environment, arguments...)
	return err
}

// Output is Go, and returns what the command printed on its standard output.
func Output(ctx context.Context, directory string, environment []string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = directory
	// The programs are static, so that a role needs nothing of the machine's libraries.
	command.Env = append(append(os.Environ(), "CGO_ENABLED=0"), environment...)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s", strings.Join(arguments, " "), directory, err, stderr.String())
	}
	return stdout.String(), nil
}
