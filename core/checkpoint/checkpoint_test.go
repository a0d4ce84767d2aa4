package checkpoint_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/inorder"
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

// walk runs the program, and returns what it said and the signal that ended it; 0 if none did.
func walk(t *testing.T, program string, environment []string, arguments ...string) (string, syscall.Signal, int) {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Env = environment
	output, err := command.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	status := command.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return string(output), status.Signal(), -1
	}
	return string(output), 0, status.ExitStatus()
}

func TestFailpoints(t *testing.T) {
	program := build(t, "-tags", "failpoints")
	tests := map[string]struct {
		point string
		steps []string
		past  []string
		// killed says that the process ended itself, wrong that it refused the point.
		killed, wrong bool
	}{
		"none":                 {point: "", steps: []string{"begin-format"}, past: []string{"begin-format"}},
		"the first time":       {point: "begin-format", steps: []string{"seal-cuk", "begin-format", "format-volume"}, past: []string{"seal-cuk"}, killed: true},
		"the second time":      {point: "get-cuk:2", steps: []string{"get-cuk", "open-volume", "get-cuk", "open-volume"}, past: []string{"get-cuk", "open-volume"}, killed: true},
		"not so often":         {point: "get-cuk:3", steps: []string{"get-cuk", "get-cuk"}, past: []string{"get-cuk", "get-cuk"}},
		"not on the way":       {point: "reseal", steps: []string{"get-cuk"}, past: []string{"get-cuk"}},
		"a file":               {point: "write:cuk.json", steps: []string{"written:cuk.json", "write:cuk.json"}, past: []string{"written:cuk.json"}, killed: true},
		"a file again":         {point: "written:cuk.json:2", steps: []string{"written:cuk.json", "written:cuk.json"}, past: []string{"written:cuk.json"}, killed: true},
		"a file with a number": {point: "write:17", steps: []string{"write:1", "write:17"}, past: []string{"write:1"}, killed: true},
		"no such step":         {point: "format", steps: []string{"get-cuk"}, wrong: true},
		"no such number":       {point: "get-cuk:0", steps: []string{"get-cuk"}, wrong: true},
		"no file":              {point: "write:", steps: []string{"get-cuk"}, wrong: true},
	}
	for name, test := range inorder.Of(tests) {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			output, signal, exit := walk(t, program, []string{"REEVE_FAILPOINT=" + test.point, "REEVE_FAILPOINT_LOG=" + log}, append([]string{""}, test.steps...)...)
			if test.wrong {
				if exit != 2 || !strings.Contains(output, "REEVE_FAILPOINT="+test.point) || strings.Contains(output, "past") {
					t.Errorf("exit status %d: %s", exit, output)
				}
				return
			}
			if killed := signal == syscall.SIGKILL; killed != test.killed {
				t.Errorf("signal %v, exit status %d", signal, exit)
			}
			want := ""
			for _, step := range test.past {
				want += "past " + step + "\n"
			}
			if output != want {
				t.Errorf("output\n%swant\n%s", output, want)
			}
			// The step at which it ended is in the log too.
			taken := test.past
			if test.killed {
				taken = test.steps[:len(test.past)+1]
			}
			if got, err := os.ReadFile(log); err != nil || string(got) != strings.Join(taken, "\n")+"\n" {
				t.Errorf("log %q, %v; want %q", got, err, taken)
			}
		})
	}
}

// A file that is replaced has a step before it has the new content and one after.
func TestFilesHaveSteps(t *testing.T) {
	program := build(t, "-tags", "failpoints")
	path := filepath.Join(t.TempDir(), "f.json")
	run := func(point string) (string, syscall.Signal) {
		t.Helper()
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, signal, _ := walk(t, program, []string{"REEVE_FAILPOINT=" + point, "REEVE_FAILPOINT_LOG=" + path + ".log"}, path)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content), signal
	}
	for _, test := range []struct {
		point, content string
		signal         syscall.Signal
	}{{string(checkpoint.Write(path)), "old", syscall.SIGKILL}, {string(checkpoint.Written(path)), "new", syscall.SIGKILL}, {"", "new", 0}} {
		if content, signal := run(test.point); content != test.content || signal != test.signal {
			t.Errorf("at %q: content %q, signal %v", test.point, content, signal)
		}
	}
	if got, err := os.ReadFile(path + ".log"); err != nil || string(got) != "write:f.json\nwrite:f.json\nwritten:f.json\nwrite:f.json\nwritten:f.json\n" {
		t.Errorf("log %q, %v", got, err)
	}
}

// The program as it is built for people has no failpoints, and does not even know the names of the variables.
func TestProductHasNone(t *testing.T) {
	program := build(t)
	log := filepath.Join(t.TempDir(), "log")
	for _, point := range []string{"get-cuk", "no such step"} {
		output, signal, exit := walk(t, program, []string{"REEVE_FAILPOINT=" + point, "REEVE_FAILPOINT_LOG=" + log}, "", "get-cuk")
		if signal != 0 || exit != 0 || output != "past get-cuk\n" {
			t.Errorf("at %q: signal %v, exit status %d: %s", point, signal, exit, output)
		}
	}
	if _, err := os.Stat(log); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log was written: %v", err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "REEVE_FAILPOINT") {
		t.Error("the program knows REEVE_FAILPOINT")
	}
}

func TestStepsHaveDistinctNames(t *testing.T) {
	all := checkpoint.All()
	seen := slices.Clone(all)
	slices.Sort(seen)
	if len(all) == 0 || len(slices.Compact(seen)) != len(all) {
		t.Errorf("steps: %v", all)
	}
	for _, step := range all {
		if step == "" || strings.Contains(string(step), ":") || fmt.Sprint(step) != strings.ToLower(string(step)) {
			t.Errorf("a step is named %q", step)
		}
	}
}
