package measures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/reeveproject/reeve/e2e/bench"
)

// conformance measures how long the conformance suite takes on a role without a ConsensusUser, and on one with one.
func (b *Bed) conformance(ctx context.Context, say func(string, ...any)) ([]bench.Result, error) {
	var results []bench.Result
	for _, of := range []struct{ name, path string }{
		{"without a store", b.Programs.plugin("hostsfile")}, {"with a store", b.Programs.lighthouse()},
	} {
		if b.Quick && len(results) > 0 {
			break // it takes as long, however quick it is to be
		}
		say("%s", filepath.Base(of.path))
		// It ends with an error too where this machine cannot confine a role, and takes as long.
		output, ended := exec.CommandContext(ctx, filepath.Join(b.Programs.Directory, "reeve-conformance"), of.path).Output()
		var report struct {
			Seconds float64 `json:"seconds"`
		}
		if err := json.Unmarshal(output, &report); err != nil {
			return results, fmt.Errorf("the suite on %s: %w", of.path, errors.Join(ended, err))
		}
		results = append(results, bench.OfSamples(bench.Result{
			Name: "suite, role " + of.name, What: "the conformance suite on a role " + of.name, Unit: "s", Notes: []string{filepath.Base(of.path) + ", one run"},
		}, bench.Largest, bench.AtMost(60), []float64{report.Seconds}))
	}
	return results, nil
}
