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
	"sync"
)

// module is what the import paths of all of ours begin with.
const module = "github.com/reeveproject/reeve/"

// Variable names the directory of programs that `make build` has built. Without it each package of tests builds them for itself.
const Variable = "REEVE_TEST_PROGRAMS"

// Flags are those of `make build`: with others everything would be compiled a second time.
var Flags = []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w"}

// Programs are the built programs, laid out as in bin/.
type Programs struct {
	// Workspace is the directory of go.work.
	Workspace string
	// Directory is where the programs are.
	Directory string

	kubernetes, hello once
}

// once builds something for the first test that needs it. A file that runs cannot be written, and tests run side by side.
type once struct {
	sync.Once
	err error
}

func (o *once) build(build func() error) error {
	o.Do(func() { o.err = build() })
	return o.err
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
		{p.Plugins(), []string{"plugins/consensus", "plugins/curator", "plugins/hostsfile", "plugins/archive"}},
		{filepath.Join(p.Directory, "examples"), []string{"examples/lighthouse"}},
	}
}

// ForTests puts every program that tests run into a directory: a copy of those that are built, or new ones. It is a copy since roles of every user must
// be able to pass through the directory. The plugin kubernetes is not among them: Kubernetes puts it there for the few tests that need it.
func ForTests(ctx context.Context, workspace, directory string) (*Programs, error) {
	built := os.Getenv(Variable)
	if built == "" {
		return All(ctx, workspace, directory)
	}
	p := &Programs{Workspace: workspace, Directory: directory}
	files := []string{"reeve", "reeved", "reeve-conformance", "examples/lighthouse", "failpoints/reeved", "failpoints/plugins/consensus", "failpoints/plugins/curator",
		"plugins/consensus", "plugins/curator", "plugins/hostsfile", "plugins/archive", "plugins/genesis.json"}
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

// Kubernetes builds the plugin kubernetes, which nothing else needs, and returns it. All of Kubernetes is compiled for it with the flags of `make build`; where that was done, it is linked only.
func (p *Programs) Kubernetes(ctx context.Context) (string, error) {
	return p.Plugin("kubernetes"), p.kubernetes.build(func() error { return p.buildKubernetes(ctx) })
}

func (p *Programs) buildKubernetes(ctx context.Context) error {
	if built := os.Getenv(Variable); built != "" {
		return copyFile(filepath.Join(built, "plugins", "kubernetes"), p.Plugin("kubernetes"))
	}
	if err := os.MkdirAll(p.Plugins(), 0o755); err != nil {
		return err
	}
	arguments := append([]string{"build"}, Flags...)
	arguments = append(arguments, "-o", p.Plugins()+"/", module+"plugins/kubernetes")
	return Go(ctx, p.Workspace, []string{"GOWORK=" + filepath.Join(p.Workspace, "go.work")}, arguments...)
}

// KubernetesParts builds containerd, runc, the CNI plugins and CoreDNS, and returns the directory that they are in: that of `make deps-kubernetes`, so that they are built once for all packages and
// later runs. A package that comes while another one builds them waits for it.
func (p *Programs) KubernetesParts(ctx context.Context) (directory string, err error) {
	directory = filepath.Join(p.Workspace, "bin", "kubernetes")
	return directory, p.parts(ctx, "build", "--output", directory)
}

// KubernetesPause writes the archive of the pause image that is in the plugin.
func (p *Programs) KubernetesPause(ctx context.Context, archive string) error {
	return p.parts(ctx, "pause", "--output", archive)
}

// KubernetesImage writes the archive of an image that runs a static program.
func (p *Programs) KubernetesImage(ctx context.Context, reference, program, archive string) error {
	return p.parts(ctx, "image", "--reference", reference, "--output", archive, program)
}

// KubernetesHello makes the image of the program to try a cluster with, reeve.internal/hello:1, and returns its archive.
func (p *Programs) KubernetesHello(ctx context.Context) (archive string, err error) {
	into := filepath.Join(p.Directory, "kubernetes")
	archive = filepath.Join(into, "hello.tar")
	return archive, p.hello.build(func() error {
		if err := p.build(ctx, Flags, []group{{into, []string{"plugins/kubernetes/cmd/hello"}}}); err != nil {
			return err
		}
		return p.KubernetesImage(ctx, "reeve.internal/hello:1", filepath.Join(into, "hello"), archive)
	})
}

// KubernetesUpstream builds the part of the tests that Kubernetes has of itself, cmd/upstream, and makes the images that they use, as far as these can be made without a registry: of upstream's program
// agnhost, of the pause image of the plugin, and of a static busybox. It returns the program and the archives.
func (p *Programs) KubernetesUpstream(ctx context.Context, busybox string) (program string, archives []string, err error) {
	into := filepath.Join(p.Directory, "kubernetes")
	if err := p.build(ctx, Flags, []group{{into, []string{"plugins/kubernetes/cmd/upstream"}}}); err != nil {
		return "", nil, err
	}
	workspace := []string{"GOWORK=" + filepath.Join(p.Workspace, "go.work")}
	const repository = "k8s.io/kubernetes/test/"
	if err := Go(ctx, p.Workspace, workspace, append(append([]string{"build"}, Flags...), "-o", into+"/", repository+"images/agnhost")...); err != nil {
		return "", nil, err
	}
	program = filepath.Join(into, "upstream")
	said, err := exec.CommandContext(ctx, program, "--images").Output()
	if err != nil {
		return "", nil, fmt.Errorf("%s --images: %w", program, err)
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return "", nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	links := []string{"/agnhost-2=/agnhost"}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			links = append(links, "/bin/"+applet+"=/bin/busybox")
		}
	}
	shell := []string{"--user", "", "--file", "/bin/busybox=" + busybox, "--link", strings.Join(links[1:], ",")}
	for reference := range strings.FieldsSeq(string(said)) {
		name := reference[strings.LastIndex(reference, "/")+1:]
		name, _, _ = strings.Cut(name, ":")
		archive := filepath.Join(into, "upstream-"+name+".tar")
		switch name {
		case "agnhost":
			err = p.parts(ctx, append(append([]string{"image", "--reference", reference, "--output", archive, "--command", "pause", "--link", links[0]}, shell...), filepath.Join(into, "agnhost"))...)
		case "busybox":
			err = p.parts(ctx, append([]string{"image", "--reference", reference, "--output", archive, "--command", "sh"}, shell...)...)
		case "pause":
			err = p.parts(ctx, "pause", "--reference", reference, "--output", archive)
		default:
			continue
		}
		if err != nil {
			return "", nil, err
		}
		archives = append(archives, archive)
	}
	return program, archives, nil
}

// parts runs the program that makes what a worker of Kubernetes needs.
func (p *Programs) parts(ctx context.Context, arguments ...string) error {
	into := filepath.Join(p.Directory, "kubernetes")
	if err := p.build(ctx, Flags, []group{{into, []string{"plugins/kubernetes/cmd/parts"}}}); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, filepath.Join(into, "parts"), arguments...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("parts %s: %w\n%s", strings.Join(arguments, " "), err, output)
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
