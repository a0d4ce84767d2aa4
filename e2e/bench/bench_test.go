package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/bench"
)

func TestInterleaveAlternates(t *testing.T) {
	var order strings.Builder
	clock := 0.0
	side := func(name string) bench.Side {
		return func(context.Context) (float64, error) {
			order.WriteString(name)
			clock++
			return clock, nil
		}
	}
	pairs, err := bench.Interleave(t.Context(), 1, 3, side("A"), side("B"))
	if err != nil {
		t.Fatal(err)
	}
	if order.String() != "ABBAABBA" {
		t.Errorf("order %s, want ABBAABBA", order.String())
	}
	// The first pair warms up.
	if want := []bench.Pair{{A: 4, B: 3}, {A: 5, B: 6}, {A: 8, B: 7}}; !slices.Equal(pairs, want) {
		t.Errorf("pairs %v, want %v", pairs, want)
	}
}

// A drift that is the same for both sides is not in the median of the ratios.
func TestInterleaveCancelsDrift(t *testing.T) {
	slowness := 1.0
	side := func(cost float64) bench.Side {
		return func(context.Context) (float64, error) {
			slowness *= 1.01
			return cost * slowness, nil
		}
	}
	pairs, err := bench.Interleave(t.Context(), 0, 40, side(3), side(2))
	if err != nil {
		t.Fatal(err)
	}
	result := bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.AtMost(1.52), pairs)
	if result.Value < 1.48 || result.Value > 1.52 || result.Verdict != bench.Met {
		t.Errorf("ratio %v, want 1.5", result.Value)
	}
}

func TestInterleaveEnds(t *testing.T) {
	broken := errors.New("broken")
	one := func(context.Context) (float64, error) { return 1, nil }
	if _, err := bench.Interleave(t.Context(), 0, 30, one, func(context.Context) (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := bench.Interleave(ctx, 0, 30, one, func(context.Context) (float64, error) {
		if calls++; calls == 3 {
			cancel()
		}
		return 1, nil
	})
	if !errors.Is(err, context.Canceled) || calls != 3 {
		t.Errorf("error %v after %d calls", err, calls)
	}
}

func TestVerdicts(t *testing.T) {
	pairs := func(a ...float64) []bench.Pair {
		var pairs []bench.Pair
		for _, value := range a {
			pairs = append(pairs, bench.Pair{A: value, B: 10})
		}
		return pairs
	}
	tests := map[string]struct {
		result bench.Result
		value  float64
		want   bench.Verdict
	}{
		"ratio":              {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.AtMost(1.5), pairs(11, 12, 13, 14, 15, 16, 17)), 1.4, bench.Met},
		"ratio, over":        {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.AtMost(1.3), pairs(11, 12, 13, 14, 15, 16, 17)), 1.4, bench.Missed},
		"difference":         {bench.OfPairs(bench.Result{}, bench.MedianDifference, bench.AtMost(4), pairs(11, 12, 13, 14, 15, 16, 17)), 4, bench.Met},
		"low end":            {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.LowAtLeast(1.1), pairs(11, 12, 13, 14, 15, 16, 17)), 1.4, bench.Met},
		"low end, under":     {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.LowAtLeast(1.2), pairs(11, 12, 13, 14, 15, 16, 17)), 1.4, bench.Missed},
		"too few":            {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.AtMost(1.5), pairs(11, 12)), 0, bench.Failed},
		"nothing":            {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.AtMost(1.5), []bench.Pair{{A: 1}}), 0, bench.Failed},
		"p99":                {bench.OfSamples(bench.Result{}, bench.P99, bench.AtMost(99), upTo(100)), 99, bench.Met},
		"p99, over":          {bench.OfSamples(bench.Result{}, bench.P99, bench.AtMost(98), upTo(100)), 99, bench.Missed},
		"p50":                {bench.OfSamples(bench.Result{}, bench.P50, bench.AtMost(50), upTo(100)), 50, bench.Met},
		"largest":            {bench.OfSamples(bench.Result{}, bench.Largest, bench.AtMost(30), []float64{29, 31, 30}), 31, bench.Missed},
		"no samples":         {bench.OfSamples(bench.Result{}, bench.P99, bench.AtMost(98), nil), 0, bench.Failed},
		"only reported":      {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.Any(), pairs(11, 12, 13, 14, 15, 16, 17)), 1.4, bench.Reported},
		"not for this user":  {bench.OfError(bench.Result{}, fmt.Errorf("%w: not root", bench.ErrCannotRun)), 0, bench.Skipped},
		"could not be had":   {bench.OfError(bench.Result{}, errors.New("why")), 0, bench.Failed},
		"exactly the reach":  {bench.OfPairs(bench.Result{}, bench.MedianRatio, bench.AtMost(1.4), pairs(11, 12, 13, 14, 15, 16, 17)), 1.4, bench.Met},
		"a difference below": {bench.OfPairs(bench.Result{}, bench.MedianDifference, bench.AtMost(4), pairs(1, 2, 3, 4, 5, 6, 7)), -6, bench.Met},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		if test.result.Verdict != test.want || test.result.Value != test.value {
			t.Errorf("%s: %s at %v, want %s at %v", name, test.result.Verdict, test.result.Value, test.want, test.value)
		}
	}
}

func TestSelect(t *testing.T) {
	measures := []bench.Measure{{Name: "launch"}, {Name: "store"}, {Name: "restart"}}
	for expression, want := range map[string]string{"": "launch store restart", "store": "store", "^re": "restart", "a": "launch restart", "launch|store": "launch store"} {
		selected, err := bench.Select(measures, expression)
		var names []string
		for _, measure := range selected {
			names = append(names, measure.Name)
		}
		if err != nil || strings.Join(names, " ") != want {
			t.Errorf("RUN=%s: %q %v, want %s", expression, names, err, want)
		}
	}
	for _, expression := range []string{"nothing", "("} {
		if selected, err := bench.Select(measures, expression); err == nil {
			t.Errorf("RUN=%s: %v, want an error", expression, selected)
		}
	}
}

func TestRunGoesOnAfterAFailure(t *testing.T) {
	figure := bench.OfSamples(bench.Result{Name: "f"}, bench.P50, bench.AtMost(1), []float64{1})
	say := func(string, ...any) {}
	notHere := fmt.Errorf("%w: there is no TPM", bench.ErrCannotRun)
	measure := func(name string, results []bench.Result, err error) bench.Measure {
		return bench.Measure{Name: name, Run: func(context.Context, func(string, ...any)) ([]bench.Result, error) { return results, err }}
	}
	results := bench.Run(t.Context(), []bench.Measure{
		measure("half", []bench.Result{figure}, errors.New("the disk is full")), measure("empty", nil, nil), measure("whole", []bench.Result{figure}, nil),
		measure("elsewhere", nil, notHere),
	}, say)
	var got []string
	for _, result := range results {
		got = append(got, result.Measure+" "+string(result.Verdict))
	}
	if want := []string{"half met", "half failed", "empty failed", "whole met", "elsewhere not measured"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !(&bench.Report{Results: results}).Failed() || !(&bench.Report{}).Failed() || (&bench.Report{Results: results[3:]}).Failed() {
		t.Error("which run has failed is not what its results say")
	}
	missed := bench.OfSamples(bench.Result{Name: "f"}, bench.P50, bench.AtMost(1), []float64{2})
	if missed.Verdict != bench.Missed || (&bench.Report{Results: []bench.Result{missed}}).Failed() {
		t.Error("a reach that is missed is a failure of the run")
	}
}

func sample() *bench.Report {
	var pairs []bench.Pair
	for i := range 30 {
		pairs = append(pairs, bench.Pair{A: float64(100 + i), B: 100})
	}
	return &bench.Report{
		Version: bench.Version, Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Seconds: 12.5, Selection: "store",
		Machine: bench.Machine{CPU: "a CPU", Cores: 2, Memory: 1 << 34, Kernel: "Linux 6.1", Filesystem: "ext4", Device: "/dev/vda", Go: "go1.26", User: "root", Load: "0.1 0.2 0.3"},
		Results: []bench.Result{
			func() bench.Result {
				r := bench.OfPairs(bench.Result{Name: "put", What: "w", Against: "b", Unit: "/s", Notes: []string{"n"}}, bench.MedianRatio, bench.LowAtLeast(0.85), pairs)
				r.Measure = "store"
				return r
			}(),
			bench.OfSamples(bench.Result{Measure: "death", Name: "seen", Unit: "ms"}, bench.P99, bench.AtMost(20), []float64{1, 2, 30}),
			bench.OfError(bench.Result{Measure: "idle", Name: "-"}, errors.New("no node")),
		},
	}
}

func TestReportRoundTrip(t *testing.T) {
	report := sample()
	path := filepath.Join(t.TempDir(), "bench", "results.json")
	for range 2 { // the second time over the first
		if err := report.Write(path); err != nil {
			t.Fatal(err)
		}
	}
	read, err := bench.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("read\n%s\nwant\n%s", got, want)
	}
	// The fields on which others rely.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		`"version": 1`, `"started": "2026-03-04T05:06:07Z"`, `"selection": "store"`, `"cpu": "a CPU"`, `"pairs": [`, `"samples": [`, `"interval": {`,
		`"at_least": 0.85`, `"at_most": 20`, `"verdict": "missed"`, `"error": "no node"`, `"statistic": "median ratio"`,
	} {
		if !bytes.Contains(text, []byte(field)) {
			t.Errorf("the report has no %s", field)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the report: %v %v", entries, err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(`"version": 1`), []byte(`"version": 2`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := bench.Read(path); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a report of another version: %v", err)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := sample().Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a CPU, 2 cores, Linux 6.1", "ext4 on /dev/vda", "load before 0.1 0.2 0.3",
		"store    put     30  114 /s  100 /s  median ratio  1.15×    1.09× to 1.20×  low end ≥ 0.850×  met",
		"p99           30.0 ms                  ≤ 20.0 ms         missed", "failed", "idle, -: no node",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestMachine(t *testing.T) {
	machine, err := bench.LookAtMachine(t.TempDir(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	for what, fact := range map[string]string{
		"CPU": machine.CPU, "kernel": machine.Kernel, "file system": machine.Filesystem, "device": machine.Device, "Go": machine.Go, "load": machine.Load,
		"user": machine.User,
	} {
		if fact == "" {
			t.Errorf("the %s is not known", what)
		}
	}
	if machine.Cores < 1 || machine.Memory < 1<<20 || machine.Commit != "v1" {
		t.Errorf("%+v", machine)
	}
	if machine, err := bench.LookAtMachine("/proc/self", ""); err != nil || machine.Filesystem != "proc" {
		t.Errorf("/proc is on %q, error %v", machine.Filesystem, err)
	}
}
