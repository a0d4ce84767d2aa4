package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// ReportAdded is the document of `reeve plugin report add`.
type ReportAdded struct {
	*clusterv1.ConformanceReport
	Plugin string `json:"plugin"`
	// DryRun says that the catalog was not changed.
	DryRun bool `json:"dry_run"`
}

// NewReportAdded makes the document of a report that was added on an executable of a plugin.
func NewReportAdded(plugin *clusterv1.PluginRecord, digest string, dryRun bool) ReportAdded {
	document := ReportAdded{Plugin: plugin.GetName(), DryRun: dryRun, ConformanceReport: &clusterv1.ConformanceReport{Digest: digest}}
	for _, report := range plugin.GetReports() {
		if report.GetDigest() == digest {
			document.ConformanceReport = report
		}
	}
	return document
}

// proof is what the reports say of the version that runs, or of the one that waits if none does: "passed" only if there is one on each of its executables, and all have.
func (p Plugin) proof() string {
	digests := p.GetDigests()
	if len(digests) == 0 && p.Waiting != nil {
		digests = p.Waiting.GetDigests()
	}
	results := make(map[string]string)
	for _, report := range p.Reports {
		results[report.GetDigest()] = Kind(report.GetResult())
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
		_, _ = fmt.Fprintf(w, "  %s\n    %s\n", Clean(report.GetDigest()), Clean(reportText(report, now)))
	}
}

// reportText is what a report says, in a line.
func reportText(r *clusterv1.ConformanceReport, now time.Time) string {
	var verdicts []string
	for _, verdict := range r.GetProfiles() {
		verdicts = append(verdicts, verdict.GetProfile()+": "+verdict.GetVerdict())
	}
	signer := r.GetSigner()
	if r.GetSignerGone() {
		signer += " (who is none of the owners any more)"
	}
	return fmt.Sprintf("%s (%s), suite %s, %s, signed: %s", Kind(r.GetResult()), strings.Join(verdicts, ", "), r.GetSuiteVersion(), ago(moment(r.GetStarted()), now), signer)
}

func (r ReportAdded) table(w io.Writer, now time.Time) {
	is := "is"
	if r.DryRun {
		is = "would be"
	}
	_, _ = fmt.Fprintf(w, "The report on plugin %s %s in the catalog.\n  %s\n    %s\n", Clean(r.Plugin), is, Clean(r.GetDigest()), Clean(reportText(r.ConformanceReport, now)))
	if r.DryRun {
		_, _ = fmt.Fprintln(w, "The catalog was not changed (--dry-run).")
	}
}
