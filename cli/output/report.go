package output

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reeveproject/reeve/proto/attest"
)

// Report is the document of `reeve plugin report show`: a report of the conformance suite as it was signed.
type Report struct {
	// Result is "passed" or "failed".
	Result string `json:"result"`
	// SignedBy is the public key that has signed it.
	SignedBy string `json:"signed_by"`
	// Executable is what the file was called, Digest that of its bytes.
	Executable    string `json:"executable"`
	Digest        string `json:"digest"`
	Plugin        string `json:"plugin"`
	PluginVersion string `json:"plugin_version"`
	SuiteVersion  string `json:"suite_version"`
	// Platform, Processors and Kernel are those of the machine on which the suite ran.
	Platform   string     `json:"platform"`
	Processors int        `json:"processors"`
	Kernel     string     `json:"kernel"`
	Started    *time.Time `json:"started"`
	Seconds    float64    `json:"seconds"`
	// Configurations are the digests of those with which roles were started, by role.
	Configurations map[string]string `json:"configurations"`
	// Reproduce is the command that makes the same run, word for word.
	Reproduce []string         `json:"reproduce"`
	Checks    []ReportCheck    `json:"checks"`
	Verdicts  []ProfileVerdict `json:"verdicts"`
}

// ReportCheck is how a check ended.
type ReportCheck struct {
	Check   string `json:"check"`
	Profile string `json:"profile"`
	// Status is "pass", "fail", "skip" or "not run".
	Status  string  `json:"status"`
	Reason  string  `json:"reason"`
	Seconds float64 `json:"seconds"`
}

// ReportVerified is the document of `reeve plugin report verify`.
type ReportVerified struct {
	Report
	// Signer is who has the key in the cluster; empty: the cluster was not asked.
	Signer string `json:"signer"`
}

// NewReport makes the document of a report.
func NewReport(report *attest.Report, key ed25519.PublicKey) Report {
	document := Report{
		Result: strings.ToLower(report.Result()), SignedBy: attest.KeyID(key), Executable: report.File, Digest: report.Digest, Plugin: report.Plugin, PluginVersion: report.PluginVersion,
		SuiteVersion: report.SuiteVersion, Platform: report.Machine.OS + "/" + report.Machine.Architecture, Processors: report.Machine.Processors, Kernel: report.Machine.Kernel,
		Started: &report.Started, Seconds: report.Seconds, Configurations: map[string]string{}, Reproduce: report.Reproduce, Checks: []ReportCheck{}, Verdicts: []ProfileVerdict{},
	}
	for _, configuration := range report.Configurations {
		document.Configurations[configuration.Role] = configuration.Digest
	}
	for _, check := range report.Checks {
		document.Checks = append(document.Checks, ReportCheck(check))
	}
	for _, profile := range report.Profiles {
		document.Verdicts = append(document.Verdicts, ProfileVerdict(profile))
	}
	return document
}

func (r Report) table(w io.Writer, now time.Time) {
	row(w, "CHECK", "RESULT", "TIME", "REASON")
	for _, check := range r.Checks {
		row(w, check.Check, check.Status, fmt.Sprintf("%.2fs", check.Seconds), check.Reason)
	}
	_, _ = fmt.Fprintln(w)
	r.summary(w, now)
}

// summary writes what is said of the whole.
func (r Report) summary(w io.Writer, now time.Time) {
	row(w, "Result", r.Result)
	row(w, "Plugin", strings.TrimSpace(r.Plugin+" "+r.PluginVersion))
	row(w, "Executable", r.Executable)
	row(w, "Digest", r.Digest)
	row(w, "Suite", r.SuiteVersion)
	row(w, "Machine", fmt.Sprintf("%s, %d processors, kernel %s", r.Platform, r.Processors, r.Kernel))
	row(w, "Tested", fmt.Sprintf("%s, in %.1f s", ago(r.Started, now), r.Seconds))
	row(w, "Signed by", r.SignedBy)
	row(w, "Reproduce", strings.Join(r.Reproduce, " "))
	for _, verdict := range r.Verdicts {
		_, _ = fmt.Fprintf(w, "profile %s: %s\n", Clean(verdict.Profile), Clean(verdict.Verdict))
	}
}

func (r ReportVerified) table(w io.Writer, now time.Time) {
	r.summary(w, now)
	signer := "the key that was given"
	if r.Signer != "" {
		signer = "the key of the cluster's " + Clean(r.Signer)
	}
	_, _ = fmt.Fprintf(w, "It was signed by %s, and was not changed since.\n", signer)
}
