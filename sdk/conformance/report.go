package conformance

import (
	"fmt"
	"strings"
	"time"
)

// Version is that of the suite. A check that is added, or demands more, raises it: the same plugin may conform to the one version and not to the next.
const Version = "0.4.0"

// Status is how a check ended.
type Status string

const (
	// Pass: it is as demanded.
	Pass Status = "pass"
	// Fail: it is not.
	Fail Status = "fail"
	// Skip: the manifest declares that the plugin does not have what the check is about.
	Skip Status = "skip"
	// NotRun: it could not be found out, because of another check's failure or because the run was interrupted.
	NotRun Status = "not run"
)

// Verdict is what a run says of a profile.
type Verdict string

const (
	// Conforms: every check of the profile passed, or has no object, and some have one.
	Conforms Verdict = "conforms"
	// DoesNotConform: a check failed.
	DoesNotConform Verdict = "does not conform"
	// Incomplete: no check failed, and not all were run.
	Incomplete Verdict = "incomplete"
	// NotApplicable: no check of the profile has an object, as the manifest declares absent what it is about.
	NotApplicable Verdict = "not applicable"
)

// Report is what a run of the suite has found.
type Report struct {
	// SuiteVersion is Version.
	SuiteVersion string `json:"suite_version"`
	// Executable is the file as it was given, Digest that of its bytes ("sha256:" and hex; empty if it cannot be read).
	Executable string `json:"executable"`
	Digest     string `json:"digest"`
	// Plugin and PluginVersion are as in the manifest; empty if it gave none.
	Plugin        string `json:"plugin"`
	PluginVersion string `json:"plugin_version"`
	// Platform is the operating system and the architecture of the machine, Processors how many it has for the suite.
	Platform   string `json:"platform"`
	Processors int    `json:"processors"`
	// Started is when the run began, Seconds how long it took.
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Results are those of all checks, in the order in which they were run.
	Results []Result `json:"results"`
	// Figures are what was measured, in the order in which it was.
	Figures []Figure `json:"figures"`
	// Blocked are the roles that were seen to be Blocked by what the machine lacks: the suite could not test them at work.
	Blocked []Blocked `json:"blocked"`
	// Verdicts are those of all profiles.
	Verdicts []ProfileVerdict `json:"verdicts"`
}

// Result is how a check ended.
type Result struct {
	Check    string  `json:"check"`
	Group    string  `json:"group"`
	Profile  Profile `json:"profile"`
	Sentence string  `json:"sentence"`
	Status   Status  `json:"status"`
	// Reason is what was seen, or why the check was skipped or not run; after a pass it may be empty.
	Reason  string  `json:"reason"`
	Seconds float64 `json:"seconds"`
}

// Figure is something that was measured of a role.
type Figure struct {
	Role string `json:"role"`
	// Name is what it is of: "start", "ready", "memory", "idle", "log", or the growth of something while the role was made to work.
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Blocked is a role that the machine kept from its work, and what it said that it lacks.
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

// Verdict is that on a profile; empty: the report has none.
func (r *Report) Verdict(profile Profile) Verdict {
	for _, of := range r.Verdicts {
		if of.Profile == profile {
			return of.Verdict
		}
	}
	return ""
}

// Result is that of a check; nil: there is no such check.
func (r *Report) Result(check string) *Result {
	for n := range r.Results {
		if r.Results[n].Check == check {
			return &r.Results[n]
		}
	}
	return nil
}

// judge sets the verdicts by the results.
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

// Failures says in a line for each what has failed; empty: nothing has.
func (r *Report) Failures() string {
	var lines []string
	for _, result := range r.Results {
		if result.Status == Fail {
			lines = append(lines, fmt.Sprintf("%s: %s", result.Check, result.Reason))
		}
	}
	return strings.Join(lines, "\n")
}
