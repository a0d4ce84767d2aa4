package checkpoint_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// build builds the program that takes the steps of its arguments.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "walk")
	arguments := append(append([]string{"build", "-o", program}, flags...), "./testdata/walk")
	if output, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", arguments, err, output)
	}
	return program
}

// walk runs the program in a directory with points, and returns what it said, whether it was killed, its exit status and the points that are left.
func walk(t *testing.T, program, points string, steps ...string) (output string, killed bool, code int, left string) {
	t.Helper()
	directory := t.TempDir()
	file := filepath.Join(directory, "failpoint")
	if points != "" {
		if err := os.WriteFile(file, []byte(points), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(program, append([]string{directory}, steps...)...)
	command.Env = []string{}
	said, err := command.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil && points != "" {
		t.Fatal(err)
	}
	status := command.ProcessState.Sys().(syscall.WaitStatus)
	return string(said), status.Signaled() && status.Signal() == syscall.SIGKILL, command.ProcessState.ExitCode(), string(content)
}

func TestARoleEndsAtThePointsOfItsFile(t *testing.T) {
	program := build(t, "-tags", "failpoints")
	for name, test := range map[string]struct {
		points string
		steps  []string
		output string
		killed bool
		left   string
	}{
		"no file":         {steps: []string{"write"}, output: "does write\npast write\n"},
		"before":          {points: "before:write\n", steps: []string{"write"}, killed: true, left: "\n"},
		"after":           {points: "after:write\n", steps: []string{"write"}, output: "does write\n", killed: true, left: "\n"},
		"one of several":  {points: "after:promote\nbefore:write 1\nafter:write\n", steps: []string{"write"}, killed: true, left: "after:promote\nafter:write\n"},
		"the second time": {points: "before:write 2\n", steps: []string{"write", "promote", "write"}, output: "does write\npast write\ndoes promote\npast promote\n", killed: true, left: "\n"},
		"not so often":    {points: "before:write 3\n", steps: []string{"write", "write"}, output: "does write\npast write\ndoes write\npast write\n", left: "before:write 1\n"},
		"another step":    {points: "before:promote\n", steps: []string{"write"}, output: "does write\npast write\n", left: "before:promote\n"},
		"part of a name":  {points: "before:writ\n", steps: []string{"write"}, output: "does write\npast write\n", left: "before:writ\n"},
	} {
		t.Run(name, func(t *testing.T) {
			output, killed, _, left := walk(t, program, test.points, test.steps...)
			if output != test.output || killed != test.killed || left != test.left {
				t.Errorf("killed %t, output %q, left %q; want %t, %q, %q", killed, output, left, test.killed, test.output, test.left)
			}
		})
	}
}

// What a role came to is written down, the point at which it ended last.
func TestARoleSaysWhatItHasPassed(t *testing.T) {
	program, directory := build(t, "-tags", "failpoints"), t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "failpoint"), []byte("after:promote\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_ = exec.Command(program, directory, "write", "write", "promote").Run() // the first one is killed
	}
	content, err := os.ReadFile(filepath.Join(directory, "failpoint-passed"))
	want := strings.Repeat("before:write\nafter:write\nbefore:promote\nafter:promote\n", 2)
	if err != nil || string(content) != want {
		t.Errorf("passed %q, %v; want %q", content, err, want)
	}
}

// A step that is not among those that were named would never be stopped at by a test that goes by them.
func TestAStepThatWasNotNamedIsRefused(t *testing.T) {
	output, killed, code, _ := walk(t, build(t, "-tags", "failpoints"), "", "forgotten")
	if killed || code != 2 || !strings.Contains(output, "forgotten") {
		t.Errorf("exit status %d, killed %t: %s", code, killed, output)
	}
}

// The plugin as it is built for people has no failpoints, and does not even know the name of the file.
func TestProductHasNone(t *testing.T) {
	program := build(t)
	output, killed, code, left := walk(t, program, "before:write\n", "write", "forgotten")
	if killed || code != 0 || left != "before:write\n" || output != "does write\npast write\ndoes forgotten\npast forgotten\n" {
		t.Errorf("killed %t, exit status %d, left %q: %s", killed, code, left, output)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "failpoint-steps") {
		t.Error("the program knows the files of failpoints")
	}
}

func TestWhatFailsIsNotPast(t *testing.T) {
	failure := errors.New("no")
	if err := checkpoint.Around("write", func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("%v in place of %v", err, failure)
	}
}
