package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/kubernetes/internal/image"
)

// builder builds parts into a directory.
type builder struct {
	directory string
	// architecture is for which machines, by Go's name; empty: what Go builds for.
	architecture string
	// say tells whoever waits how far it is.
	say func(format string, arguments ...any)
}

// unfinished is what the names of directories begin with in which something is being built.
const unfinished = ".building-"

// build builds those parts that are not up to date.
func (b *builder) build(ctx context.Context, parts []part) error {
	if err := os.MkdirAll(b.directory, 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// What a build has left that was killed.
	left, err := filepath.Glob(filepath.Join(b.directory, unfinished+"*"))
	if err != nil {
		return err
	}
	for _, directory := range left {
		if err := os.RemoveAll(directory); err != nil {
			return err
		}
	}
	compiler, err := findCompiler(ctx, b.architecture)
	if err != nil {
		return err
	}
	done := readRecords(b.directory)
	for _, part := range parts {
		wanted, err := part.record(ctx, compiler)
		if err != nil {
			return err
		}
		switch current, err := done.holds(b.directory, part.name, wanted); {
		case err != nil:
			return err
		case current:
			b.say("%s %s: up to date", part.name, part.version)
			continue
		}
		b.say("%s %s: building", part.name, part.version)
		began := time.Now()
		used, err := b.part(ctx, part, compiler, &wanted)
		if err != nil {
			return fmt.Errorf("%s %s: %w", part.name, part.version, err)
		}
		done[part.name] = wanted
		if err := done.write(b.directory); err != nil {
			return err
		}
		b.say("%s %s: built in %s, with %s of processor time", part.name, part.version, time.Since(began).Round(100*time.Millisecond), used.Round(100*time.Millisecond))
	}
	return nil
}

// lock waits until no other process builds into the directory. The lock ends with this process, however it ends.
func (b *builder) lock(ctx context.Context) (unlock func(), err error) {
	file, err := os.Open(b.directory)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() { _ = file.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", b.directory, err)
		}
		if !said {
			b.say("waiting for another build into %s", b.directory)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// compiler is the Go that builds.
type compiler struct {
	version, architecture string
	// host is whether it builds for this machine.
	host bool
}

func findCompiler(ctx context.Context, architecture string) (compiler, error) {
	text, _, err := runGo(ctx, "", nil, "env", "GOVERSION", "GOARCH", "GOHOSTARCH")
	if err != nil {
		return compiler{}, err
	}
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return compiler{}, fmt.Errorf("go env says %q", text)
	}
	if architecture == "" {
		architecture = fields[1]
	}
	return compiler{version: fields[0], architecture: architecture, host: architecture == fields[2]}, nil
}

// record returns of what and how the part is to be built.
func (p part) record(ctx context.Context, with compiler) (record, error) {
	wanted := record{Module: p.module, Version: p.version, Sum: p.sum, Go: with.version, GOARCH: with.architecture, Flags: p.flags(), Packages: p.packages}
	if len(p.c) > 0 {
		var err error
		if wanted.Libraries, err = libraries(ctx, p, with); err != nil {
			return record{}, err
		}
	}
	for name, content := range p.replaced {
		if wanted.Replaced == nil {
			wanted.Replaced = make(map[string]string)
		}
		wanted.Replaced[name] = digestOf([]byte(content))
	}
	if p.archive != "" {
		var archive bytes.Buffer
		if err := image.Write(&archive, p.image(with, nil)); err != nil {
			return record{}, err
		}
		wanted.Image = digestOf(archive.Bytes())
	}
	return wanted, nil
}

// debian are the packages of Debian that have what a part with code in C is built with.
const debian = "gcc libc6-dev libseccomp-dev pkg-config"

// libraries returns the versions of the libraries of this machine that the part is linked with.
func libraries(ctx context.Context, p part, with compiler) (map[string]string, error) {
	cc := os.Getenv("CC")
	if cc == "" && !with.host {
		return nil, fmt.Errorf("%s has code in C: to build it for %s say the C compiler in CC, and where its libraries are in PKG_CONFIG_LIBDIR", p.name, with.architecture)
	}
	if cc == "" {
		cc = "gcc"
	}
	pkgConfig := os.Getenv("PKG_CONFIG")
	if pkgConfig == "" {
		pkgConfig = "pkg-config"
	}
	var missing []string
	for _, program := range []string{strings.Fields(cc)[0], pkgConfig} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	found := make(map[string]string)
	for _, library := range p.c {
		if slices.Contains(missing, pkgConfig) {
			missing = append(missing, library)
			continue
		}
		version, err := exec.CommandContext(ctx, pkgConfig, "--modversion", library).Output()
		if err != nil {
			missing = append(missing, library)
			continue
		}
		found[library] = strings.TrimSpace(string(version))
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s is built with a C compiler and static libraries, and these are missing: %s (on Debian: apt-get install %s)", p.name, strings.Join(missing, ", "), debian)
	}
	return found, nil
}

// part builds a part, puts its files into the directory and their digests into the record. It returns the processor time that this took.
func (b *builder) part(ctx context.Context, p part, with compiler, into *record) (used time.Duration, err error) {
	work, err := os.MkdirTemp(b.directory, unfinished)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if work, err = filepath.Abs(work); err != nil {
		return 0, err
	}
	module, err := p.download(ctx, work)
	if err != nil {
		return 0, err
	}
	built := filepath.Join(work, "built")
	arguments := append([]string{"build", "-o", built + "/"}, p.flags()...)
	if len(p.replaced) > 0 {
		if module, err = p.changed(module, filepath.Join(work, "module")); err != nil {
			return 0, err
		}
	}
	environment := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + with.architecture}
	if len(p.c) > 0 {
		environment[0] = "CGO_ENABLED=1"
	}
	if _, used, err = runGo(ctx, module, environment, append(arguments, p.packages...)...); err != nil {
		return 0, err
	}
	if p.archive != "" {
		executable, err := os.ReadFile(filepath.Join(built, p.programs()[0]))
		if err != nil {
			return 0, err
		}
		if err := writeImage(filepath.Join(built, p.archive), p.image(with, executable)); err != nil {
			return 0, err
		}
	}
	into.Files = make(map[string]string)
	for _, name := range p.files() {
		if into.Files[name], err = fileDigest(filepath.Join(built, name)); err != nil {
			return 0, err
		}
		if err := os.Rename(filepath.Join(built, name), filepath.Join(b.directory, name)); err != nil {
			return 0, err
		}
	}
	return used, nil
}

// image is the image of the part's program.
func (p part) image(with compiler, executable []byte) image.Image {
	return image.Program(p.reference, with.architecture, p.programs()[0], executable)
}

// download gets the module, if it is not in the cache of modules, and returns its directory there, in which nothing may be written.
func (p part) download(ctx context.Context, outside string) (string, error) {
	name := p.module + "@" + p.version
	// Where no go.mod says anything about it.
	text, _, err := runGo(ctx, outside, nil, "mod", "download", "-json", name)
	var got struct{ Dir, Sum, Error string }
	if decoded := json.Unmarshal([]byte(text), &got); decoded != nil {
		return "", errors.Join(err, fmt.Errorf("what `go mod download` says of %s: %w", name, decoded))
	}
	switch {
	case got.Error != "":
		return "", fmt.Errorf("the module cannot be downloaded (go env GOPROXY says from where): %s", got.Error)
	case err != nil:
		return "", err
	case got.Sum != p.sum:
		return "", fmt.Errorf("%s has the sum %s, and is to have %s: it is not what was tried. Nothing was built of it. Who serves it is in `go env GOPROXY`; the sum is in plugins/kubernetes/cmd/parts/sources.go",
			name, got.Sum, p.sum)
	}
	return got.Dir, nil
}

// changed copies the module, with the files that replace its own, and returns where the copy is. (Go's -overlay takes none for what is in the cache of modules.)
func (p part) changed(module, into string) (string, error) {
	if err := os.CopyFS(into, os.DirFS(module)); err != nil {
		return "", err
	}
	for name, content := range p.replaced {
		file := filepath.Join(into, name)
		if err := os.Remove(file); err != nil {
			return "", fmt.Errorf("the file that is to be replaced: %w", err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	return into, nil
}

// unset are variables that would change what is built without a trace in the record.
var unset = []string{"GOWORK", "GOFLAGS", "GOEXPERIMENT", "GOAMD64", "GOARM64", "GODEBUG", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_LDFLAGS"}

// runGo runs the go command in a directory, with further variables in its environment, and returns its standard output, which there also is with an error, and the processor time that it took.
func runGo(ctx context.Context, directory string, environment []string, arguments ...string) (string, time.Duration, error) {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = directory
	command.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(unset, name)
	})
	command.Env = append(append(command.Env, "GOWORK=off", "GOFLAGS="), environment...)
	// Asked to end, it ends the compilers that it has started.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	err := command.Run()
	if ctx.Err() != nil {
		return "", 0, ctx.Err()
	}
	var used time.Duration
	if state := command.ProcessState; state != nil {
		used = state.UserTime() + state.SystemTime()
	}
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(arguments, " "), err, strings.TrimSpace(problems.String()))
	}
	return out.String(), used, err
}

// writeImage writes the archive of an image into a file.
func writeImage(name string, of image.Image) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(name)
		}
	}()
	return image.Write(file, of)
}
