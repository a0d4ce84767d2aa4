package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// conformanceReport is what this test reads of the document of `reeve plugin test -o json`.
type conformanceReport struct {
	Plugin  string  `json:"plugin"`
	Seconds float64 `json:"seconds"`
	Results []struct {
		Check  string `json:"check"`
		Status string `json:"status"`
		Reason string `json:"reason"`
	} `json:"results"`
	Verdicts []struct {
		Profile string `json:"profile"`
		Verdict string `json:"verdict"`
	} `json:"verdicts"`
}

// TestOurPluginsConform runs the conformance suite on the executables of the built-in plugins and of the examples, as anybody can. There is no list of exceptions. What it
// says is a table of `make test`.
func TestOurPluginsConform(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var rows [][]string
	failed := 0
	t.Cleanup(func() {
		if err := writeConformance(rows, failed); err != nil {
			t.Error(err)
		}
	})
	for _, plugin := range []string{
		suite.programs.Plugin("consensus"), suite.programs.Plugin("curator"), suite.programs.Plugin("hostsfile"), suite.programs.Plugin("archive"), suite.programs.Lighthouse(),
	} {
		t.Run(filepath.Base(plugin), func(t *testing.T) {
			t.Parallel()
			report, err := conformance(t.Context(), plugin)
			if err != nil {
				t.Error(err)
			}
			count := make(map[string]int)
			for _, result := range report.Results {
				count[result.Status]++
				if result.Status != "pass" && result.Status != "skip" {
					t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if t.Failed() {
				failed++
			}
			for _, profile := range report.Verdicts {
				rows = append(rows, []string{report.Plugin, profile.Profile, profile.Verdict, fmt.Sprint(count["pass"]), fmt.Sprint(count["skip"]), fmt.Sprint(count["fail"] + count["not run"]),
					fmt.Sprintf("%.0f s", report.Seconds)})
			}
		})
	}
}

func conformance(ctx context.Context, plugin string) (report conformanceReport, err error) {
	command := exec.CommandContext(ctx, suite.programs.Reeve(), "plugin", "test", "--quiet", "-o", "json", plugin)
	var stderr strings.Builder
	command.Stderr = &stderr
	document, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", plugin, err, stderr.String())
	}
	if decodeErr := json.Unmarshal(document, &report); decodeErr != nil && err == nil {
		err = decodeErr
	}
	if err == nil && (len(report.Results) == 0 || len(report.Verdicts) == 0) {
		err = fmt.Errorf("the report on %s is empty", plugin)
	}
	return report, err
}

// writeConformance leaves the table where `make test` finds it.
func writeConformance(rows [][]string, failed int) error {
	directory := filepath.Join(suite.programs.Workspace, "var", "test", "tables")
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	content, err := json.MarshalIndent(map[string]any{
		"title": "Conformance of our plugins", "columns": []string{"plugin", "profile", "verdict", "passed", "skipped", "failed or not run", "took"}, "rows": rows, "failed": failed,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "conformance.json"), append(content, '\n'), 0o644)
}
