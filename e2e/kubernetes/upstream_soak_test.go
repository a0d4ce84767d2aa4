//go:build soak

package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// upstreamPasses is the list of those of upstream's tests that pass, a line each: how many seconds it took, and its name.
const upstreamPasses = "testdata/upstream.txt"

// upstreamBound is how many seconds one may have taken that is run each time.
const upstreamBound = 12

// upstreamFocus is a variable with a regular expression. With it all of upstream's tests are run whose names it matches, in place of those of the list, and the list is written anew: what passes is in
// it, what fails is not, and what was not run is as it was.
const upstreamFocus = "REEVE_UPSTREAM"

// suiteName is what Ginkgo puts before the name of each test when it looks for those that are to run. cmd/upstream says it.
const suiteName = "Kubernetes"

// spec is one of upstream's tests, as Ginkgo reports it.
type spec struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Leaf       string   `json:"LeafNodeText"`
	Kind       string   `json:"LeafNodeType"`
	State      string
	RunTime    int64
	Attempts   int `json:"NumAttempts"`
	Failure    struct{ Message string }
}

func (s spec) name() string { return strings.Join(append(slices.Clone(s.Containers), s.Leaf), " ") }

// TestUpstream runs a part of the tests that Kubernetes has of itself: those of the list that do not take long. They need no registry.
func TestUpstream(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("not run: upstream's tests need a static busybox, which Debian has in busybox-static")
	}
	text, err := os.ReadFile(upstreamPasses)
	if err != nil {
		t.Fatal(err)
	}
	passes, focus := make(map[string]int), os.Getenv(upstreamFocus)
	var short []string
	for line := range strings.Lines(string(text)) {
		seconds, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if passes[name], err = strconv.Atoi(seconds); err != nil {
			t.Fatalf("%s: %v", upstreamPasses, err)
		}
		if passes[name] <= upstreamBound {
			short = append(short, name)
		}
	}
	if len(short) == 0 && focus == "" {
		t.Fatalf("%s has none to run", upstreamPasses)
	}
	f := newFleet(t)
	program, archives, err := shared.Programs.KubernetesUpstream(t.Context(), busybox)
	if err != nil {
		t.Fatal(err)
	}
	for _, archive := range archives {
		f.MustReeve(t, "kubernetes", "image", "load", archive)
	}
	f.nodesAre(t, workers...)
	f.mustKubectl(t, "rollout", "status", "deployment", "coredns", "--namespace", "kube-system", "--timeout", soon.String(), "--request-timeout", soon.String())
	u := upstream{fleet: f, program: program}
	if focus != "" {
		u.renew(t, focus, passes)
		return
	}
	results := u.run(t, short)
	for _, name := range short {
		switch result, ok := results[name]; {
		case !ok || result.State != "passed":
			t.Errorf("%s: %s %s", name, result.State, result.Failure.Message)
		case result.Attempts > 1:
			t.Logf("%s: passed at attempt %d", name, result.Attempts)
		}
	}
	t.Logf("%d of upstream's tests were run; of %d it is known that they pass", len(short), len(passes))
}

// upstream runs upstream's tests on a fleet.
type upstream struct {
	*fleet
	program string
}

// atOnce is how many run at a time.
const atOnce = 4

// run runs the tests of these names.
func (u upstream) run(t *testing.T, names []string) map[string]spec {
	t.Helper()
	var mu sync.Mutex
	found := make(map[string]spec)
	var group sync.WaitGroup
	for shard := range atOnce {
		var own []string
		for n := shard; n < len(names); n += atOnce {
			own = append(own, regexp.QuoteMeta(names[n]))
		}
		if len(own) == 0 {
			continue
		}
		group.Go(func() {
			specs := u.shard(t, fmt.Sprint(shard), "^"+suiteName+" ("+strings.Join(own, "|")+")$")
			mu.Lock()
			defer mu.Unlock()
			for _, s := range specs {
				found[s.name()] = s
			}
		})
	}
	group.Wait()
	return found
}

// shard runs what an expression matches, one after another, and returns what was run.
func (u upstream) shard(t *testing.T, name, focus string, more ...string) (found []spec) {
	t.Helper()
	report := filepath.Join(u.Home, "upstream-"+name+".json")
	arguments := append([]string{
		"--kubeconfig=" + u.kubeconfig, "--provider=skeleton", "--num-nodes=2", "--disable-log-dump", "--ginkgo.focus=" + focus, "--ginkgo.skip=" + neverRun, "--ginkgo.json-report=" + report,
		// What upstream gives a pod for a step is for machines with nothing else to do.
		"--ginkgo.flake-attempts=2",
		"--ginkgo.no-color", "--ginkgo.timeout=2h", "--ginkgo.succinct",
	}, more...)
	command := exec.CommandContext(t.Context(), u.program, arguments...)
	command.Dir = u.Home
	command.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + u.Home, "XDG_CONFIG_HOME=" + filepath.Join(u.Home, "config")}
	log := filepath.Join(u.Home, "upstream-"+name+".log")
	file, err := os.Create(log)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = file.Close() }()
	command.Stdout, command.Stderr = file, file
	ended := command.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		said, _ := os.ReadFile(log)
		t.Errorf("upstream's tests ended without a report: %v\n%s", ended, said[max(0, len(said)-4000):])
		return nil
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(text, &suites); err != nil {
		t.Error(err)
		return nil
	}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			if s.Kind == "It" && s.State != "skipped" && s.State != "pending" {
				found = append(found, s)
			}
		}
	}
	return found
}

// neverRun matches tests that disturb others, that need what these machines have not, or that take longer than the rest together.
const neverRun = `\[Serial\]|\[Disruptive\]|\[Slow\]|\[Feature:|\[FeatureGate:`

// renew runs what an expression matches, and writes the list anew.
func (u upstream) renew(t *testing.T, focus string, passes map[string]int) {
	t.Helper()
	var names []string
	for _, s := range u.shard(t, "dry-run", focus, "--ginkgo.dry-run") {
		names = append(names, s.name())
	}
	t.Logf("%d of upstream's tests match", len(names))
	results := u.run(t, names)
	if len(results) == 0 {
		t.Fatal("none was run")
	}
	for name, result := range results {
		seconds := int(time.Duration(result.RunTime).Round(time.Second) / time.Second)
		t.Logf("%d s %s %s: %s", seconds, result.State, name, result.Failure.Message)
		delete(passes, name)
		if result.State == "passed" {
			passes[name] = seconds
		}
	}
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(passes)) {
		fmt.Fprintf(&list, "%d %s\n", passes[name], name)
	}
	if err := os.WriteFile(upstreamPasses, []byte(list.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
