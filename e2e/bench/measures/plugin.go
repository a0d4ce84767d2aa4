package measures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/reeveproject/reeve/e2e/bench"
)

// plugin measures what `reeve plugin new` writes, as its author has it: how large the executable is that its Makefile builds, and how long the test takes that it
// comes with, from the exec of the test's binary to its end.
func (b *Bed) plugin(ctx context.Context, say func(string, ...any)) (results []bench.Result, err error) {
	checkout, err := checkout()
	if err != nil {
		return nil, err
	}
	at, err := b.place()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, at.remove()) }()
	warm, count := b.count(2, 30)
	for _, kind := range []struct {
		name, what, flag, test string
		most                   float64
	}{
		{"hello", "a role that shows a value", "", "TestGreets", 15},
		{"keeper", "a role that keeps something in the store", "--store", "TestStoreIsLost", 20},
	} {
		module, err := b.newPlugin(ctx, at.work, checkout, kind.name, kind.flag)
		if err != nil {
			return results, err
		}
		executable, err := os.Stat(filepath.Join(module, "bin", kind.name))
		if err != nil {
			return results, err
		}
		results = append(results, bench.OfSamples(bench.Result{
			Name: kind.name + ", size", What: kind.what + ", as `reeve plugin new` writes it: the executable, stripped", Unit: "MB", Notes: []string{"MB are 10^6 bytes"},
		}, bench.Largest, bench.AtMost(kind.most), []float64{float64(executable.Size()) / 1e6}))
		say("%s: %d runs of its test", kind.name, count)
		var took []float64
		for n := range warm + count {
			begun := time.Now()
			if err := run(ctx, module, filepath.Join(module, "role.test"), "-test.run", "^"+kind.test+"$", "-test.count", "1"); err != nil {
				return results, err
			}
			if n >= warm {
				took = append(took, milliseconds(time.Since(begun)))
			}
		}
		results = append(results, bench.OfSamples(bench.Result{
			Name: kind.name + ", test", What: kind.what + ": " + kind.test + " of the test that it comes with, which is built already", Unit: "ms",
		}, bench.P50, bench.AtMost(1000), took))
	}
	return results, nil
}

// newPlugin has `reeve plugin new` write a plugin, and builds it and its tests.
func (b *Bed) newPlugin(ctx context.Context, directory, checkout, name, flag string) (module string, err error) {
	module = filepath.Join(directory, name)
	arguments := []string{"plugin", "new", name, "--reeve", checkout, "--directory", module}
	if flag != "" {
		arguments = append(arguments, flag)
	}
	if err := run(ctx, directory, filepath.Join(b.Programs.Directory, "reeve"), arguments...); err != nil {
		return "", err
	}
	return module, errors.Join(
		run(ctx, module, "make", "build"),
		run(ctx, module, "go", "test", "-trimpath", "-c", "-o", "role.test", "."),
	)
}

// run runs a command with what builds a static executable in its environment, and says what it printed if it failed.
func run(ctx context.Context, directory, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = directory
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, output)
	}
	return nil
}

// checkout is the one in which the working directory is: a plugin is built against it.
func checkout() (string, error) {
	directory, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := directory; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.work")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is in no checkout of Reeve: a plugin is built against one", directory)
		}
	}
}
