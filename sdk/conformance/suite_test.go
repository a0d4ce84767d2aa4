package conformance_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/reeveproject/reeve/sdk/conformance"
	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"
	"github.com/reeveproject/reeve/sdk/conformance/store"
)

// program is the file of the mutant, without a fault yet, and reeved the file of the core, which has the sandbox.
var (
	program string
	// slots are where in it its fault is written.
	slots  []int64
	reeved string
)

func TestMain(m *testing.M) {
	if executable := os.Getenv(victimVariable); executable != "" {
		os.Exit(victim(executable))
	}
	os.Exit(testMain(m))
}

// atOnce is how many runs of the suite there are beside one another at least, unless -parallel=1 has them run alone. Most of the time they wait, but some measure the use of a
// processor, and many more runs at once would disturb them.
const atOnce = 6

func testMain(m *testing.M) int {
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value
	if number, err := strconv.Atoi(parallel.String()); err == nil && number > 1 && number < atOnce {
		if err := parallel.Set(strconv.Itoa(atOnce)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	directory, err := os.MkdirTemp("/tmp", "mutant")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	program = filepath.Join(directory, "mutant")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./internal/mutant")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the mutant: %v\n%s", err, output)
		return 1
	}
	content, err := os.ReadFile(program)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if slots = faults.Slots(content); len(slots) == 0 {
		fmt.Fprintln(os.Stderr, "the mutant has no place for a fault")
		return 1
	}
	reeved = filepath.Join(directory, "reeved")
	core := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", reeved, "./cmd/reeved")
	core.Dir, core.Env = "../../core", build.Env
	if output, err := core.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the core: %v\n%s", err, output)
		return 1
	}
	code := m.Run()
	for deadline := time.Now().Add(time.Minute); len(left()) > 0; time.Sleep(10 * time.Millisecond) {
		endHidden()
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "processes of plugins are left: %v\n", left())
			code = 1
			break
		}
	}
	// etcd and gRPC end slowly on a busy machine, and goleak waits for less than a second.
	err = goleak.Find()
	for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// endHidden kills the processes that one mutant hides, since a suite without a sandbox cannot find them. Every other process must have ended.
func endHidden() {
	for _, pid := range left() {
		number, err := strconv.Atoi(pid)
		if err != nil {
			continue
		}
		// The handle keeps the number from meaning another process.
		process, err := os.FindProcess(number)
		if err != nil {
			continue
		}
		if line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline")); strings.HasSuffix(string(line), "\x00hidden\x00") {
			_ = process.Kill()
		}
		_ = process.Release()
	}
}

// left are the processes that a run has left behind.
func left() (found []string) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasPrefix(target, filepath.Dir(reeved)+"/") {
			found = append(found, filepath.Base(filepath.Dir(link)))
		}
	}
	return found
}

// mutate makes a mutant, and returns its file.
func mutate(t *testing.T, fault string) string {
	t.Helper()
	directory, err := os.MkdirTemp(filepath.Dir(reeved), "mutant")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	path, mode := filepath.Join(directory, fault), os.FileMode(0o755)
	if fault == faults.NoRunBit {
		mode = 0o644
	}
	// No process is forked while the file is open for writing, as it could not be executed as long as that process has it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := writeMutant(path, fault, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeMutant(path, fault string, mode os.FileMode) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	// The kernel copies it.
	_, err = io.Copy(to, from)
	for _, at := range slots {
		if err == nil {
			_, err = to.WriteAt(faults.Filled(fault), at)
		}
	}
	return errors.Join(err, to.Close())
}

// test runs the suite.
func test(t *testing.T, config conformance.Config) *conformance.Report {
	t.Helper()
	config.Store, config.Reeved = store.Open, reeved
	report, err := conformance.Test(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestTheFaultlessPluginConforms(t *testing.T) {
	t.Parallel()
	report := test(t, conformance.Config{Executable: mutate(t, faults.None)})
	if !report.Conforms() || report.Plugin != "mutant" || report.PluginVersion != "0.1.0" || !strings.HasPrefix(report.Digest, "sha256:") {
		t.Errorf("the report of %s %s (%s) has %v\n%s", report.Plugin, report.PluginVersion, report.Digest, report.Verdicts, report.Failures())
	}
	if len(report.Results) != len(conformance.Checks()) {
		t.Errorf("%d results of %d checks", len(report.Results), len(conformance.Checks()))
	}
	for _, result := range report.Results {
		if result.Status != conformance.Pass {
			t.Errorf("%s: %s (%s): the faultless plugin is to have what every check is about", result.Check, result.Status, result.Reason)
		}
		t.Logf("%-26s %6.2fs  %s", result.Check, result.Seconds, result.Reason)
	}
	// That every constraint of it is broken is what the other mutants rest on.
	if found := report.Result("configuration.refused").Reason; found != "31 constraints" {
		t.Errorf("configuration.refused has tried %s", found)
	}
}

// TestBlocked holds that roles which their machine keeps from their work conform as far as they can be seen to, that the report says so, and that what could not be seen is not
// taken for good.
func TestBlocked(t *testing.T) {
	t.Parallel()
	report := test(t, conformance.Config{Executable: mutate(t, faults.Blocked)})
	for profile, want := range map[conformance.Profile]conformance.Verdict{
		conformance.Core: conformance.Conforms, conformance.Privileged: conformance.Conforms,
		conformance.NetworkService: conformance.Incomplete, conformance.ConsensusUser: conformance.NotApplicable,
	} {
		if got := report.Verdict(profile); got != want {
			t.Errorf("%s: %s, want %s", profile, got, want)
		}
	}
	if failures := report.Failures(); failures != "" {
		t.Error(failures)
	}
	want := []conformance.Blocked{{Role: "steward", Reason: "there is no lamp"}, {Role: "server", Reason: "there is no lamp"}}
	if !slices.Equal(report.Blocked, want) {
		t.Errorf("the report says %v", report.Blocked)
	}
	if told := report.Result("lifecycle.ready"); !strings.Contains(told.Reason, "steward Blocked by this machine (there is no lamp)") {
		t.Errorf("lifecycle.ready: %s", told.Reason)
	}
	if told := report.Result("network.published"); told.Status != conformance.NotRun || told.Reason != "role server: it is Blocked on this machine: there is no lamp" {
		t.Errorf("network.published: %s: %s", told.Status, told.Reason)
	}
}

func TestEveryCheckHasAMutant(t *testing.T) {
	table := faults.Table()
	tested := make(map[string]bool)
	for _, check := range table {
		tested[check] = true
	}
	known := make(map[string]bool)
	for _, check := range conformance.Checks() {
		if known[check.ID] {
			t.Errorf("the ID %s is there twice", check.ID)
		}
		known[check.ID] = true
		if !tested[check.ID] {
			t.Errorf("no mutant has the fault that %s is to find", check.ID)
		}
		if !strings.HasPrefix(check.ID, check.Group+".") || !strings.HasSuffix(check.Sentence, ".") || check.Profile == "" {
			t.Errorf("%s: want an ID that begins with the group %q, a sentence and a profile", check.ID, check.Group)
		}
	}
	for fault, check := range table {
		if !known[check] {
			t.Errorf("the mutant %s is for a check %s, which there is not", fault, check)
		}
	}
}

// wholeVariable has TestMutants run every check on every mutant (`make mutants`, a part of `make soak`), which takes a quarter of an hour of both processors.
const wholeVariable = "REEVE_MUTANTS"

// TestChecks runs a few checks only, with what they need: nothing else is run or told of, and the verdict is Incomplete until one fails.
func TestChecks(t *testing.T) {
	t.Parallel()
	var told []string
	ended := func(result conformance.Result) { told = append(told, result.Check) }
	report := test(t, conformance.Config{Executable: mutate(t, faults.Plain), Checks: []string{"manifest.steady"}, Ended: ended})
	for _, result := range report.Results {
		if of := result.Check == "manifest.steady" || result.Check == "manifest.describe"; of && result.Status != conformance.Pass || result.Status == conformance.Pass != slices.Contains(told, result.Check) {
			t.Errorf("%s: %s: %s; told of: %t", result.Check, result.Status, result.Reason, slices.Contains(told, result.Check))
		}
		if result.Check == "lifecycle.start" && (result.Status != conformance.NotRun || result.Reason != "it was not asked for") {
			t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
		}
	}
	if verdict := report.Verdict(conformance.Core); verdict != conformance.Incomplete || report.Conforms() {
		t.Errorf("the verdict is %s", verdict)
	}
	if _, err := conformance.Test(t.Context(), conformance.Config{Executable: mutate(t, faults.Plain), Checks: []string{"manifest.staedy"}}); err == nil || !strings.Contains(err.Error(), `"manifest.staedy"`) {
		t.Errorf("a check that there is not: %v", err)
	}
}

// TestMutants holds that each mutant fails in its check and in no other one of the same group, or of all groups if that is asked for. Others may not be run, as they would only find
// the same again. Of several mutants of one check the gate runs the first.
func TestMutants(t *testing.T) {
	t.Parallel()
	groups := make(map[string][]string)
	for _, group := range conformance.Groups() {
		for _, check := range group.Checks() {
			groups[group.Name] = append(groups[group.Name], check.ID)
		}
	}
	table, whole := faults.Table(), os.Getenv(wholeVariable) == "whole"
	ran := make(map[string]bool)
	for _, fault := range slices.Sorted(maps.Keys(table)) {
		check := table[fault]
		if ran[check] && !whole {
			continue
		}
		ran[check] = true
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			config := conformance.Config{Executable: mutate(t, fault)}
			if slices.Contains([]string{faults.ServesByHand, faults.Mute, faults.DescribeHangs}, fault) {
				config = conformance.Impatient(config) // these use all the time that they are given
			}
			if !whole {
				group, _, _ := strings.Cut(check, ".")
				config.Checks = groups[group]
			}
			report := test(t, config)
			if profile := report.Result(check).Profile; report.Verdict(profile) != conformance.DoesNotConform || report.Conforms() {
				t.Errorf("a mutant has the verdicts %v", report.Verdicts)
			}
			for _, result := range report.Results {
				if (result.Status == conformance.Fail) != (result.Check == check) {
					t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
				}
				if result.Check == check {
					t.Logf("%.1fs in all: %s", report.Seconds, result.Reason)
				}
			}
		})
	}
}
