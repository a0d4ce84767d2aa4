package output_test

import (
	"bytes"
	"encoding/xml"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/cli/output"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func sampleConformance() output.Conformance {
	result := func(check, status, reason string) output.CheckResult {
		group, _, _ := strings.Cut(check, ".")
		return output.CheckResult{Check: check, Group: group, Profile: "core", Sentence: "It is as it should be: so people expect it.", Status: status, Reason: reason, Seconds: 0.125}
	}
	return output.Conformance{
		SuiteVersion: "0.1.0", Executable: "./hello", Digest: "sha256:0f0f", Plugin: "hello", PluginVersion: "0.1.0", Platform: "linux/amd64", Processors: 2,
		Started: at(time.Minute), Seconds: 12.5,
		Results: []output.CheckResult{
			result("handshake.line", "pass", ""), result("manifest.describe", "pass", "hello 0.1.0"), result("lifecycle.start", "fail", "role hello: it answers <\x1b[2J>"),
			result("lifecycle.stop", "not run", "it needs lifecycle.start"), result("configuration.none", "skip", "the manifest says: every role has a configuration schema"),
		},
		Figures:  []output.Figure{{Role: "hello", Name: "memory", Value: 3.25, Unit: "MiB"}, {Role: "hello", Name: "idle", Value: 0.125, Unit: "% of a processor"}},
		Blocked:  []output.BlockedRole{{Role: "hello", Reason: "the machine has no \x1b lamp"}},
		Verdicts: []output.ProfileVerdict{{Profile: "core", Verdict: "does not conform"}},
	}
}

func sampleReport() output.Report {
	return output.Report{
		Result: "failed", SignedBy: "wS2cAAAA=", Executable: "hello", Digest: "sha256:0f0f", Plugin: "hello", PluginVersion: "0.1.0", SuiteVersion: "0.1.0", Platform: "linux/amd64",
		Processors: 2, Kernel: "6.1.0", Started: at(time.Minute), Seconds: 12.5, Configurations: map[string]string{"hello": "sha256:0e0e"},
		Reproduce: []string{"reeve", "plugin", "test", "hello"},
		Checks: []output.ReportCheck{
			{Check: "handshake.line", Profile: "core", Status: "pass", Seconds: 0.5}, {Check: "lifecycle.start", Profile: "core", Status: "fail", Reason: "it answers <\x1b[2J>"},
		},
		Verdicts: []output.ProfileVerdict{{Profile: "core", Verdict: "does not conform"}},
	}
}

func samplePluginReport(digest, result string) *clusterv1.ConformanceReport {
	return &clusterv1.ConformanceReport{
		Digest: digest, Result: clusterv1.ConformanceResult(clusterv1.ConformanceResult_value["CONFORMANCE_RESULT_"+strings.ToUpper(result)]), SuiteVersion: "0.1.0", Started: stamp(time.Hour),
		Added: stamp(time.Minute), Signer: "operator alice", SignerKey: []byte{0xc1, 0x2d, 0x9c}, SignerGone: result == "failed", Sha256: []byte{1},
		Profiles: []*clusterv1.ConformanceProfile{{Profile: "core", Verdict: "conforms"}, {Profile: "consensus user", Verdict: "not applicable"}}, Passed: 30, Skipped: 2,
	}
}

// TestJUnit holds the report for what runs tests. UPDATE_GOLDEN=1 writes it anew.
func TestJUnit(t *testing.T) {
	var got bytes.Buffer
	if err := sampleConformance().PrintJUnit(&got); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/conformance.junit.xml"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("it is\n%s\nwant\n%s", got.Bytes(), want)
	}
	var read struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	if err := xml.Unmarshal(got.Bytes(), &read); err != nil || read.Tests != 5 || read.Failures != 1 || read.Errors != 1 || read.Skipped != 1 {
		t.Errorf("it is read as %+v, %v", read, err)
	}
}

func TestConforms(t *testing.T) {
	for _, test := range []struct {
		verdicts []string
		want     bool
	}{
		{nil, false}, {[]string{"conforms"}, true}, {[]string{"conforms", "incomplete"}, false}, {[]string{"does not conform"}, false},
		{[]string{"conforms", "not applicable"}, true}, {[]string{"not applicable"}, false},
	} {
		var report output.Conformance
		for _, verdict := range test.verdicts {
			report.Verdicts = append(report.Verdicts, output.ProfileVerdict{Verdict: verdict})
		}
		if report.Conforms() != test.want {
			t.Errorf("%q: conforms is %t", test.verdicts, report.Conforms())
		}
	}
}
