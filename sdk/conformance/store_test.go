package conformance_test

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/reeveproject/reeve/sdk/conformance"
	"github.com/reeveproject/reeve/sdk/conformance/internal/faults"
)

// TestWithoutStore runs the suite on a plugin that uses the store, and has none for it: what could not be seen is no pass.
func TestWithoutStore(t *testing.T) {
	t.Parallel()
	report, err := conformance.Test(t.Context(), conformance.Config{Executable: mutate(t, faults.LeavesLease), Reeved: reeved})
	if err != nil {
		t.Fatal(err)
	}
	if report.Verdict(conformance.Core) != conformance.Conforms || report.Verdict(conformance.ConsensusUser) != conformance.Incomplete || report.Conforms() {
		t.Errorf("%v\n%s", report.Verdicts, report.Failures())
	}
	for _, result := range report.Results {
		if (result.Status == conformance.NotRun) != (result.Profile == conformance.ConsensusUser) {
			t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
		}
	}
}

// TestNotApplicable runs the suite on a plugin without a ConsensusUser: the profile is none of its, and it conforms.
func TestNotApplicable(t *testing.T) {
	t.Parallel()
	report := test(t, conformance.Config{Executable: mutate(t, faults.Plain)})
	if report.Verdict(conformance.ConsensusUser) != conformance.NotApplicable || !report.Conforms() {
		t.Errorf("%v\n%s", report.Verdicts, report.Failures())
	}
	for _, result := range report.Results {
		if (result.Status == conformance.Skip) != (result.Profile != conformance.Core || result.Check == "configuration.none") {
			t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
		}
	}
}

// TestWithoutSandbox runs the suite where there is no reeved: what could not be seen is no pass.
func TestWithoutSandbox(t *testing.T) {
	t.Parallel()
	other, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{"none": "", "missing": filepath.Join(t.TempDir(), "reeved"), "another program": other}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		path := table[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := conformance.Config{Executable: mutate(t, faults.Plain), Reeved: path}
			if path != "" { // otherwise everything else is run too
				config.Checks = []string{"isolation.runs", "isolation.processes"}
			}
			report, err := conformance.Test(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			if report.Verdict(conformance.Core) != conformance.Incomplete || report.Conforms() {
				t.Errorf("%v\n%s", report.Verdicts, report.Failures())
			}
			for _, result := range report.Results {
				if result.Reason == "it was not asked for" {
					continue
				}
				if (result.Status == conformance.NotRun) != (result.Check == "isolation.runs" || result.Check == "isolation.processes") {
					t.Errorf("%s: %s: %s", result.Check, result.Status, result.Reason)
				}
			}
		})
	}
}
