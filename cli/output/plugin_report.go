package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/attest"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// PluginReport is what the catalog holds of a report of the conformance suite on an executable.
type PluginReport struct {
	Digest string `json:"digest"`
	// Result is "passed" or "failed".
	Result       string     `json:"result"`
	SuiteVersion string     `json:"suite_version"`
	Started      *time.Time `json:"started"`
	Added        *time.Time `json:"added"`
	// Signer is who signed it: "owner", "operator" and a name, or "built in". SignedBy is the public key.
	Signer   string `json:"signer"`
	SignedBy string `json:"signed_by"`
	// SignerGone says that the signer is none of the cluster's owners any more.
	SignerGone bool             `json:"signer_gone"`
	Verdicts   []ProfileVerdict `json:"verdicts"`
	Passed     uint32           `json:"passed"`
	Failed     uint32           `json:"failed"`
	Skipped    uint32           `json:"skipped"`
	NotRun     uint32           `json:"not_run"`
}

// ReportAdded is the document of `reeve plugin report add`.
type ReportAdded struct {
	PluginReport
	Plugin string `json:"plugin"`
	// DryRun says that the catalog was not changed.
	DryRun bool `json:"dry_run"`
}

// NewReportAdded makes the document of a report that was added on an executable of a plugin.
func NewReportAdded(plugin *clusterv1.PluginRecord, digest string, dryRun bool) ReportAdded {
	document := ReportAdded{Plugin: plugin.GetName(), DryRun: dryRun, PluginReport: PluginReport{Digest: digest, Verdicts: []ProfileVerdict{}}}
	for _, report := range newPluginReports(plugin.GetReports()) {
		if report.Digest == digest {
			document.PluginReport = report
		}
	}
	return document
}

func newPluginReports(reports []*clusterv1.ConformanceReport) []PluginReport {
	documents := []PluginReport{}
	for _, report := range reports {
		document := PluginReport{
			Digest: report.GetDigest(), Result: Kind(report.GetResult()), SuiteVersion: report.GetSuiteVersion(), Started: moment(report.GetStarted()), Added: moment(report.GetAdded()),
			Signer: report.GetSigner(), SignedBy: attest.KeyID(report.GetSignerKey()), SignerGone: report.GetSignerGone(), Verdicts: []ProfileVerdict{},
			Passed: report.GetPassed(), Failed: report.GetFailed(), Skipped: report.GetSkipped(), NotRun: report.GetNotRun(),
		}
		for _, profile := range report.GetProfiles() {
			document.Verdicts = append(document.Verdicts, ProfileVerdict{Profile: profile.GetProfile(), Verdict: profile.GetVerdict()})
		}
		documents = append(documents, document)
	}
	return documents
}

// proof is what the reports say of the version that runs, or of the one that waits if none does: "passed" only if there is one on each of its executables, and all have.
func (p Plugin) proof() string {
	digests := p.Digests
	if len(digests) == 0 && p.Waiting != nil {
		digests = p.Waiting.Digests
	}
	results := make(map[string]string)
	for _, report := range p.Reports {
		results[report.Digest] = report.Result
	}
	proof := ""
	for _, digest := range digests {
		switch result := results[digest]; {
		case result == "failed":
			return result
		case result == "":
			proof = "none"
		case proof == "":
			proof = result
		}
	}
	return proof
}

// reports writes what the reports say, if there are some.
func (p Plugin) reports(w io.Writer, now time.Time) {
	if len(p.Reports) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, "\nReports of the conformance suite:")
	for _, report := range p.Reports {
		_, _ = fmt.Fprintf(w, "  %s\n    %s\n", Clean(report.Digest), Clean(report.text(now)))
	}
}

// text is what a report says, in a line.
func (r PluginReport) text(now time.Time) string {
	var verdicts []string
	for _, verdict := range r.Verdicts {
		verdicts = append(verdicts, verdict.Profile+": "+verdict.Verdict)
	}
	signer := r.Signer
	if r.SignerGone {
		signer += " (who is none of the owners any more)"
	}
	return fmt.Sprintf("%s (%s), suite %s, %s, signed: %s", r.Result, strings.Join(verdicts, ", "), r.SuiteVersion, ago(r.Started, now), signer)
}

func (r ReportAdded) table(w io.Writer, now time.Time) {
	is := "is"
	if r.DryRun {
		is = "would be"
	}
	_, _ = fmt.Fprintf(w, "The report on plugin %s %s in the catalog.\n  %s\n    %s\n", Clean(r.Plugin), is, Clean(r.Digest), Clean(r.text(now)))
	if r.DryRun {
		_, _ = fmt.Fprintln(w, "The catalog was not changed (--dry-run).")
	}
}
