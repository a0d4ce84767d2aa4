package measures_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/bench/measures"
	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// programs builds everything that is measured, as `make bench` does.
func programs(t *testing.T) measures.Programs {
	t.Helper()
	workspace, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(t.TempDir(), "bin")
	if _, err := build.All(t.Context(), workspace, directory); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(directory, "bench")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	arguments := append([]string{"build"}, build.Flags...)
	if err := build.Go(t.Context(), workspace, []string{"GOWORK=" + filepath.Join(workspace, "go.work")},
		append(arguments, "-o", own+"/", "./e2e/bench/programs/...")...); err != nil {
		t.Fatal(err)
	}
	return measures.Programs{Directory: directory}
}

// Every measure measures, and leaves no process and no file; but for those of Kubernetes, which take minutes, so that its plugin is not built here and they say so. What it measures means nothing here: the machine is busy with other tests.
// The gate has the only one that needs no programs.
func TestMeasures(t *testing.T) {
	run, _ := measures.RunPlace()
	var built measures.Programs
	if soak.Enabled {
		built = programs(t)
	}
	bed, err := measures.NewBed(built, os.TempDir(), run)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	bed.Quick = true
	figures := map[string]int{"launch": 1, "sandbox": 1, "adopt": 1, "memory": 1, "host-call": 1, "store": 4, "attacked": 4, "restart": 1, "sealed": 1, "unseal": 2, "writes": 6, "role-add": 2, "growth": 1, "remote-role": 3, "failover": 1, "snapshot": 3, "restore": 1, "recover-quorum": 1, "idle": 3, "nodes": 14, "plugin": 4, "death": 1, "conformance": 1, "control-plane": 1, "api-writes": 1, "pods": 3}
	for _, measure := range measures.All(bed) {
		if !soak.Enabled && measure.Name != "host-call" {
			continue
		}
		t.Run(measure.Name, func(t *testing.T) {
			results, err := measure.Run(t.Context(), t.Logf)
			if errors.Is(err, bench.ErrCannotRun) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(results) != figures[measure.Name] {
				t.Errorf("%d figures, want %d", len(results), figures[measure.Name])
			}
			for _, result := range results {
				if result.Verdict == bench.Failed || result.Value == 0 && result.Unit != "%" || len(result.Pairs)+len(result.Samples) == 0 {
					t.Errorf("%s: %s at %v %s of %d pairs and %d samples: %s", result.Name, result.Verdict, result.Value, result.Unit,
						len(result.Pairs), len(result.Samples), result.Error)
				}
			}
		})
		left(t, bed)
	}
}

// left fails the test for what a measure left behind.
func left(t *testing.T, bed *measures.Bed) {
	t.Helper()
	for _, directory := range []string{bed.Work, bed.Run} {
		if entries, err := os.ReadDir(directory); err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v, error %v", directory, entries, err)
		}
	}
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		for _, argument := range append(process.Arguments, process.Executable) {
			if inside, err := filepath.Rel(bed.Work, argument); err == nil && filepath.IsLocal(inside) && !process.Ended() {
				t.Errorf("left: %s", process)
			}
		}
	}
}

// A node that cannot start is a failure with its reason, at once.
func TestBrokenNode(t *testing.T) {
	directory := t.TempDir()
	for _, name := range []string{"reeved", "plugins/consensus"} {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho no such luck >&2\nexit 3\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bed, err := measures.NewBed(measures.Programs{Directory: directory}, t.TempDir(), os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	selected, err := bench.Select(measures.All(bed), "idle")
	if err != nil {
		t.Fatal(err)
	}
	results := bench.Run(context.Background(), selected, func(string, ...any) {})
	if len(results) != 1 || results[0].Verdict != bench.Failed {
		t.Fatalf("%+v", results)
	}
	if !strings.Contains(results[0].Error, "no such luck") {
		t.Errorf("the error does not say why: %s", results[0].Error)
	}
	left(t, bed)
}
