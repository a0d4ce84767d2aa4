package conformance_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/conformance"
	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"
	"github.com/reeveproject/reeve/sdk/conformance/store"
)

// long is how long a test waits for something that must happen.
const long = time.Minute

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhatIsNoPlugin runs the suite on files of all kinds: each fails in the check that names the fault, and no other check fails.
func TestWhatIsNoPlugin(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	table := map[string]struct{ path, check, reason string }{
		"missing":    {filepath.Join(directory, "nothing"), "handshake.executable", "no such file"},
		"directory":  {directory, "handshake.executable", "is a directory"},
		"device":     {"/dev/null", "handshake.executable", "is no regular file"},
		"no run bit": {mutate(t, faults.NoRunBit), "handshake.executable", "chmod +x"},
		"text":       {script(t, "not a program\n"), "handshake.executable", "exec format error"},
		"garbage":    {script(t, "#!/bin/sh\n[ -z \"$REEVE_PLUGIN\" ] && { echo no >&2; exit 1; }\nhead -c 100000 /dev/zero; sleep 100\n"), "handshake.line", "no handshake line"},
		"forks": {script(t, "#!/bin/sh\n[ -z \"$REEVE_PLUGIN\" ] && { echo no >&2; exit 1; }\nexport PLUGIN=$0\nfor n in 1 2 3; do (trap '' TERM; while :; do sleep 100; done) & setsid sleep 100 & done\n"+
			"echo '1|2'\n"), "handshake.line", "no handshake line"},
		"ends between": {script(t, "#!/bin/sh\n[ -z \"$REEVE_PLUGIN\" ] && { echo no >&2; exit 1; }\necho \"1|1|unix|$PLUGIN_UNIX_SOCKET_DIR/s|grpc\"\nexit 0\n"), "handshake.socket", "no such file"},
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		of := table[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := test(t, conformance.Config{Executable: of.path})
			if report.Conforms() {
				t.Errorf("%v", report.Verdicts)
			}
			for _, result := range report.Results {
				if (result.Status == conformance.Fail) != (result.Check == of.check) {
					t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
				}
			}
			if left := inheritors("PLUGIN=" + of.path); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			if reason := report.Result(of.check).Reason; !strings.Contains(reason, of.reason) {
				t.Errorf("%s says %q, want something with %q", of.check, reason, of.reason)
			}
		})
	}
}

// inheritors are the processes that have a variable.
func inheritors(variable string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environment, _ := os.ReadFile(file)
		if slices.Contains(strings.Split(string(environment), "\x00"), variable) {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

// TestInterrupted ends the run in the middle of every group, before its last check: the later checks are not run, the report is incomplete, and nothing of the run is left.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"handshake.line", "manifest.steady", "lifecycle.stop", "lifecycle.cycles", "configuration.refused", "logging.bounded", "resources.growth", "isolation.runs", "isolation.processes", "peers.older-host", "store.own-keys", "store.away", "restart.lives"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fault := faults.Plain
			if strings.HasPrefix(at, "store.") {
				fault = faults.None
			}
			checks := []string{at, "restart.patience"}
			if at == "isolation.runs" {
				// The role lives its idle life before the check, so that the sandbox is what is interrupted.
				checks = append(checks, "resources.memory")
			}
			report, err := conformance.Test(ctx, conformance.Config{
				Executable: mutate(t, fault), Store: store.Open, Reeved: reeved, Checks: checks,
				Began: func(check conformance.Check) {
					if check.ID == at {
						time.AfterFunc(20*time.Millisecond, cancel)
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			last := report.Result("restart.patience")
			if report.Verdicts[0].Verdict != conformance.Incomplete || last.Status != conformance.NotRun || last.Reason != "the run was interrupted" || report.Conforms() {
				t.Errorf("%v, and a later check: %s (%s)\n%s", report.Verdicts, last.Status, last.Reason, report.Failures())
			}
		})
	}
}

// TestTwoAtOnce runs two suites beside one another: neither ends or counts what is the other's.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	path := mutate(t, faults.Plain)
	for _, name := range []string{"one", "other"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if report := test(t, conformance.Config{Executable: path}); !report.Conforms() {
				t.Errorf("%v\n%s", report.Verdicts, report.Failures())
			}
		})
	}
}

// TestConfigurationIsGiven starts a role with a configuration of the caller's.
func TestConfigurationIsGiven(t *testing.T) {
	t.Parallel()
	path := mutate(t, faults.Plain)
	report := test(t, conformance.Config{Executable: path, Configurations: map[string]string{"mutant": `{"name": "given", "workers": 3}`}})
	if !report.Conforms() {
		t.Errorf("%v\n%s", report.Verdicts, report.Failures())
	}
	report = test(t, conformance.Config{Executable: path, Configurations: map[string]string{"mutant": `{"workers": 9}`}, Checks: []string{"lifecycle.start"}})
	if result := report.Result("lifecycle.start"); result.Status != conformance.Fail || !strings.Contains(result.Reason, "role mutant") {
		t.Errorf("started with what does not fit, lifecycle.start is %s: %s", result.Status, result.Reason)
	}
}

// TestRun runs the suite as a plugin's own module does.
func TestRun(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Config{Executable: mutate(t, faults.Plain), Store: store.Open})
}

// victimVariable has the test's own binary run the suite on the executable that it names, until it is killed or interrupted; its reeved is in reevedVariable.
const victimVariable, reevedVariable = "CONFORMANCE_VICTIM", "CONFORMANCE_REEVED"

func victim(executable string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	_, err := conformance.Test(ctx, conformance.Config{
		Executable: executable, Reeved: os.Getenv(reevedVariable), Began: func(check conformance.Check) { fmt.Println(check.ID) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

// TestEnded ends the suite itself while a role runs, in its sandbox and without: Ctrl-C leaves nothing over, and when it is killed the kernel ends the plugin with it.
func TestEnded(t *testing.T) {
	t.Parallel()
	table := map[string]struct {
		fault, at string
		signal    syscall.Signal
	}{
		// In the first a process stays for seconds, whatever the machine is doing.
		"interrupted":           {faults.IgnoresSIGTERM, "lifecycle.sigterm", syscall.SIGINT},
		"killed":                {faults.IgnoresSIGTERM, "lifecycle.sigterm", syscall.SIGKILL},
		"interrupted, confined": {faults.Plain, "isolation.runs", syscall.SIGINT},
		"killed, confined":      {faults.Plain, "isolation.runs", syscall.SIGKILL},
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		test := table[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.Command("/proc/self/exe")
			command.Env = append(os.Environ(), victimVariable+"="+mutate(t, test.fault), reevedVariable+"="+reeved)
			output, err := command.StdoutPipe()
			if err == nil {
				err = command.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			for lines := bufio.NewScanner(output); lines.Scan() && lines.Text() != test.at; {
			}
			confined := test.at == "isolation.runs"
			directory := ""
			for deadline := time.Now().Add(long); directory == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				directory = worksIn(command.Process.Pid, confined)
			}
			if err := command.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, output)
			_ = command.Wait() // how it ends is not what is tested
			if !strings.HasPrefix(filepath.Base(directory), "rc") {
				t.Fatalf("no plugin was seen to run: %q", directory)
			}
			_, err = os.Stat(directory)
			if test.signal == syscall.SIGINT && !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", directory, err)
			}
			for deadline := time.Now().Add(long); ; time.Sleep(10 * time.Millisecond) {
				left := instancesIn(directory)
				if len(left) == 0 {
					break
				}
				if test.signal == syscall.SIGINT || time.Now().After(deadline) {
					t.Fatalf("processes %v of the plugin live on", left)
				}
			}
			// A suite that was killed cannot remove what it made. A role that still ran could write to the directory.
			if err := os.RemoveAll(directory); err != nil {
				t.Error(err)
			}
		})
	}
}

// worksIn is the directory in which a suite works that is a process, by what it has launched: in a sandbox, or without. Empty: nothing yet.
func worksIn(suite int, confined bool) string {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environment, _ := os.ReadFile(file)
		for variable := range strings.SplitSeq(string(environment), "\x00") {
			socket, ok := strings.CutPrefix(variable, "PLUGIN_UNIX_SOCKET_DIR=")
			if !ok {
				continue
			}
			pid := filepath.Base(filepath.Dir(file))
			parent := parentOf(pid)
			if confined {
				parent = parentOf(parent)
			}
			if parent == strconv.Itoa(suite) {
				return filepath.Dir(socket)
			}
		}
	}
	return ""
}

// parentOf is the parent of a process; empty: it has ended.
func parentOf(pid string) string {
	content, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
	for line := range strings.Lines(string(content)) {
		if parent, ok := strings.CutPrefix(line, "PPid:"); ok {
			return strings.TrimSpace(parent)
		}
	}
	return ""
}

// instancesIn are the processes that were launched with a socket below a directory.
func instancesIn(directory string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environment, _ := os.ReadFile(file)
		if strings.Contains(string(environment), "PLUGIN_UNIX_SOCKET_DIR="+directory+"/") {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}
