package conformance

import (
	"fmt"
	"strings"
	"time"
)

// Version is the version of the suite. It grows when a check is added or requires more: a plugin may conform to one version and not to the next.
const Version = "0.4.0"

// Status is the outcome of a check.
type Status string

const (
	// Pass: the plugin meets the requirement.
	Pass Status = "pass"
	// Fail: it does not.
	Fail Status = "fail"
	// Skip: by its manifest, the plugin lacks the subject of the check.
	Skip Status = "skip"
	// NotRun: unknown, because another check failed or the run was interrupted.
	NotRun Status = "not run"
)

// Verdict is the outcome of a profile.
type Verdict string

const (
	// Conforms: every check of the profile passed or does not apply, and at least one applies.
	Conforms Verdict = "conforms"
	// DoesNotConform: a check failed.
	DoesNotConform Verdict = "does not conform"
	// Incomplete: no check failed, but not all were run.
	Incomplete Verdict = "incomplete"
	// NotApplicable: by the manifest, no check of the profile applies.
	NotApplicable Verdict = "not applicable"
)

// Report is the result of a run of the suite.
type Report struct {
	// SuiteVersion is Version.
	SuiteVersion string `json:"suite_version"`
	// Executable is the file as given. Digest is its digest ("sha256:" and hex; empty if it cannot be read).
	Executable string `json:"executable"`
	Digest     string `json:"digest"`
	// Plugin and PluginVersion are from the manifest; empty without one.
	Plugin        string `json:"plugin"`
	PluginVersion string `json:"plugin_version"`
	// Platform is the machine's operating system and architecture, Processors the number of processors that the suite may use.
	Platform   string `json:"platform"`
	Processors int    `json:"processors"`
	// Started is when the run began, Seconds its duration.
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Results has the results of all checks in the order of their run.
	Results []Result `json:"results"`
	// Figures are the measurements in the order in which they were made.
	Figures []Figure `json:"figures"`
	// Blocked are the roles that this machine kept Blocked: the suite could not test them at work.
	Blocked []Blocked `json:"blocked"`
	// Verdicts has the verdicts of all profiles.
	Verdicts []ProfileVerdict `json:"verdicts"`
}

// Result is the outcome of a check.
type Result struct {
	Check    string  `json:"check"`
	Group    string  `json:"group"`
	Profile  Profile `json:"profile"`
	Sentence string  `json:"sentence"`
	Status   Status  `json:"status"`
	// Reason is what was observed, or why the check was skipped or not run. It may be empty after a pass.
	Reason  string  `json:"reason"`
	Seconds float64 `json:"seconds"`
}

// Figure is a measurement of a role.
type Figure struct {
	Role string `json:"role"`
	// Name is what was measured: "start", "ready", "memory", "idle", "log", or the growth of something while the role worked.
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Blocked is a role that the machine kept Blocked, with what it says is missing.
type Blocked struct {
	Role   string `json:"role"`
	Reason string `json:"reason"`
}

// ProfileVerdict is the verdict of a profile.
type ProfileVerdict struct {
	Profile Profile `json:"profile"`
	Verdict Verdict `json:"verdict"`
}

// Conforms reports whether the plugin conforms to every profile that applies to it.
func (r *Report) Conforms() bool {
	some := false
	for _, profile := range r.Verdicts {
		switch profile.Verdict {
		case Conforms:
			some = true
		case NotApplicable:
		default:
			return false
		}
	}
	return some
}

// Verdict returns the verdict of a profile; empty if the report has none.
func (r *Report) Verdict(profile Profile) Verdict {
	for _, of := range r.Verdicts {
		if of.Profile == profile {
			return of.Verdict
		}
	}
	return ""
}

// Result returns the result of a check; nil if there is no such check.
func (r *Report) Result(check string) *Result {
	for n := range r.Results {
		if r.Results[n].Check == check {
			return &r.Results[n]
		}
	}
	return nil
}

// judge derives the verdicts from the results.
func (r *Report) judge() {
	r.Verdicts = nil
	for _, profile := range Profiles() {
		verdict := NotApplicable
		for _, result := range r.Results {
			switch {
			case result.Profile != profile || verdict == DoesNotConform:
			case result.Status == Fail:
				verdict = DoesNotConform
			case result.Status == NotRun:
				verdict = Incomplete
			case result.Status == Pass && verdict == NotApplicable:
				verdict = Conforms
			}
		}
		r.Verdicts = append(r.Verdicts, ProfileVerdict{profile, verdict})
	}
}

// Failures lists the failures, one per line; empty if there are none.
func (r *Report) Failures() string {
	var lines []string
	for _, result := range r.Results {
		if result.Status == Fail {
			lines = append(lines, fmt.Sprintf("%s: %s", result.Check, result.Reason))
		}
	}
	return strings.Join(lines, "\n")
}
