package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// kernelPackage is Debian's package that requires the newest kernel for virtual machines.
const kernelPackage = "linux-image-cloud-amd64"

// MissingError is what this machine lacks for starting another one. A test that meets it is skipped.
type MissingError struct {
	// What is missing, and how to get it.
	What string
	Err  error
}

func (e *MissingError) Error() string {
	if e.Err == nil {
		return e.What
	}
	return fmt.Sprintf("%s: %v", e.What, e.Err)
}

func (e *MissingError) Unwrap() error { return e.Err }

// kernel is an unpacked kernel package.
type kernel struct {
	// image is what qemu boots.
	image string
	// modules is the directory of the modules.
	modules string
}

var (
	// dependency is a line of `apt-cache depends`.
	dependency = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\S+)$`)
	// candidate is a line of `apt-cache policy`.
	candidate = regexp.MustCompile(`(?m)^\s*Candidate: (\S+)$`)
)

// getKernel returns Debian's kernel, out of the cache directory or by apt-get. It is unpacked there, and not installed.
func getKernel(ctx context.Context, cache string) (*kernel, error) {
	name, version, err := newestKernel(ctx)
	if err != nil {
		// Without lists of packages, what was got before serves as well.
		if kept, keptErr := keptKernel(cache); keptErr == nil {
			return kept, nil
		}
		return nil, err
	}
	directory := filepath.Join(cache, name+"_"+strings.ReplaceAll(version, ":", "%3a"))
	if k, err := openKernel(directory); err == nil {
		return k, nil
	}
	return unpackKernel(ctx, cache, name+"="+version, directory)
}

// newestKernel returns the name and the version of the package that has the kernel.
func newestKernel(ctx context.Context) (name, version string, err error) {
	depends, err := output(ctx, "apt-cache", "depends", kernelPackage)
	if err != nil {
		return "", "", err
	}
	match := dependency.FindStringSubmatch(depends)
	if match == nil {
		return "", "", &MissingError{What: "apt knows no package " + kernelPackage + ": run apt-get update on a Debian system"}
	}
	policy, err := output(ctx, "apt-cache", "policy", match[1])
	if err != nil {
		return "", "", err
	}
	found := candidate.FindStringSubmatch(policy)
	if found == nil || found[1] == "(none)" {
		return "", "", &MissingError{What: "apt has no version of " + match[1] + ": run apt-get update"}
	}
	return match[1], found[1], nil
}

// unpackKernel gets the package and unpacks it.
func unpackKernel(ctx context.Context, cache, version, directory string) (*kernel, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	// The directory takes its name when it is complete, so that what was interrupted is not taken for a kernel.
	work, err := os.MkdirTemp(cache, "get-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	get := exec.CommandContext(ctx, "apt-get", "download", "-qq", version)
	get.Dir = work
	if text, err := get.CombinedOutput(); err != nil {
		return nil, &MissingError{What: "apt-get cannot get " + version + ": " + strings.TrimSpace(string(text)), Err: err}
	}
	packages, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(packages) != 1 {
		return nil, fmt.Errorf("apt-get download %s left %d packages in %s: %w", version, len(packages), work, errors.Join(err))
	}
	root := filepath.Join(work, "root")
	if _, err := output(ctx, "dpkg-deb", "--extract", packages[0], root); err != nil {
		return nil, err
	}
	if _, err := openKernel(root); err != nil {
		return nil, err
	}
	if err := os.Rename(root, directory); err != nil && !errors.Is(err, fs.ErrExist) {
		// Another run may have been faster.
		if k, openErr := openKernel(directory); openErr == nil {
			return k, nil
		}
		return nil, err
	}
	return openKernel(directory)
}

// keptKernel returns the newest kernel that is in the cache.
func keptKernel(cache string) (*kernel, error) {
	directories, err := filepath.Glob(filepath.Join(cache, "linux-image-*"))
	if err != nil || len(directories) == 0 {
		return nil, errors.Join(errors.New("no kernel was kept"), err)
	}
	return openKernel(directories[len(directories)-1])
}

func openKernel(directory string) (*kernel, error) {
	images, err := filepath.Glob(filepath.Join(directory, "boot", "vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("%s holds %d kernels, want 1", directory, len(images))
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	for _, modules := range []string{"lib/modules", "usr/lib/modules"} {
		k := &kernel{image: images[0], modules: filepath.Join(directory, modules, release)}
		if info, err := os.Stat(k.modules); err == nil && info.IsDir() {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%s has no modules of %s", directory, release)
}

// output runs a program and returns what it wrote on its standard output. A program that does not exist is missing.
func output(ctx context.Context, program string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, program, arguments...)
	var stderr strings.Builder
	command.Stderr = &stderr
	text, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", &MissingError{What: "the program " + program + " is not installed"}
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(text), nil
}
