package attest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reeveproject/reeve/proto/limits"
)

// What the suite says of a check and of a profile.
const (
	Pass   = "pass"
	Fail   = "fail"
	Skip   = "skip"
	NotRun = "not run"

	Conforms       = "conforms"
	DoesNotConform = "does not conform"
	Incomplete     = "incomplete"
	NotApplicable  = "not applicable"
)

// Results of a run, as the predicate for test results calls them. A run that was not completed has not passed; Reeve knows no warnings.
const (
	Passed = "PASSED"
	Failed = "FAILED"
)

// MaxArguments is the largest number of words in Conformance.Reproduce.
const MaxArguments = 64

const (
	// maxChecks and maxProfiles are how many there are.
	maxChecks   = 512
	maxProfiles = 16
	// maxText is how long a text is, in bytes, and maxName how long the name of a profile or a version: the catalog's record holds them.
	maxText = 1024
	maxName = 64
)

// Report is what a run of the conformance suite found of an executable.
type Report struct {
	// File is what the executable was called, without its directory, and Digest the one of its bytes: "sha256:" and hex.
	File, Digest string
	// Configurations are the documents with which roles were started that the caller gave.
	Configurations []Configuration
	Conformance
}

// Configuration is a document with which a role was started.
type Configuration struct {
	Role, Digest string
}

// Conformance is what the predicate for test results has no place for. It is written beside its fields, as reeve_conformance.
type Conformance struct {
	// SuiteVersion is that of the suite.
	SuiteVersion string `json:"suiteVersion"`
	// Plugin and PluginVersion are as in the manifest; empty: it gave none.
	Plugin        string  `json:"plugin"`
	PluginVersion string  `json:"pluginVersion"`
	Machine       Machine `json:"machine"`
	// Started is when the run began, in UTC, Seconds how long it took.
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Profiles are all of the suite, with what it says of each.
	Profiles []Profile `json:"profiles"`
	// Checks are all of the suite, in the order in which they were run.
	Checks []Check `json:"checks"`
	// Reproduce is the command that makes the same run, word for word, in a directory with the executable and the configurations.
	Reproduce []string `json:"reproduce"`
}

// Machine is where the suite ran.
type Machine struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	// Processors is how many the suite had, Kernel the release of the kernel.
	Processors int    `json:"processors"`
	Kernel     string `json:"kernel"`
}

// Profile is what the suite says of a profile: Conforms, DoesNotConform, Incomplete or NotApplicable.
type Profile struct {
	Profile string `json:"profile"`
	Verdict string `json:"verdict"`
}

// Check is how a check ended: Pass, Fail, Skip or NotRun.
type Check struct {
	Check   string `json:"check"`
	Profile string `json:"profile"`
	Status  string `json:"status"`
	// Reason is what was seen or measured, or why the check was skipped or not run.
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Result is Passed if the plugin conforms to every profile that applies to it, and Failed otherwise.
func (r *Report) Result() string {
	conforms := false
	for _, profile := range r.Profiles {
		switch profile.Verdict {
		case Conforms:
			conforms = true
		case NotApplicable:
		default:
			return Failed
		}
	}
	// A profile that nobody named could hide what failed.
	if !conforms || r.Count(Fail) > 0 || r.Count(NotRun) > 0 {
		return Failed
	}
	return Passed
}

// Count is how many checks ended in a way.
func (r *Report) Count(status string) (n int) { return len(r.with(status)) }

// with are the checks that ended in a way.
func (r *Report) with(status string) []string {
	found := []string{}
	for _, check := range r.Checks {
		if check.Status == status {
			found = append(found, check.Check)
		}
	}
	return found
}

// check returns what is wrong with the form of a report, and what in it contradicts itself.
func (r *Report) check() error {
	if !limits.DigestOK(r.Digest) {
		return fmt.Errorf("the digest of the plugin is %s, and not \"sha256:\" and 64 hex digits", quote(r.Digest))
	}
	required := map[string]string{"name of the executable": r.File, "suite's version": r.SuiteVersion, "operating system": r.Machine.OS, "architecture": r.Machine.Architecture}
	for what, text := range required {
		if text == "" {
			return fmt.Errorf("the %s is missing", what)
		}
	}
	if len(r.SuiteVersion) > maxName {
		return fmt.Errorf("the suite's version has more than %d bytes", maxName)
	}
	if r.Started.IsZero() || r.Seconds < 0 || r.Machine.Processors < 0 {
		return errors.New("it does not say when the run began and how long it took")
	}
	if len(r.Checks) == 0 || len(r.Checks) > maxChecks || len(r.Profiles) == 0 || len(r.Profiles) > maxProfiles || len(r.Reproduce) > MaxArguments || len(r.Configurations) > limits.Roles {
		return fmt.Errorf("it has %d checks, %d profiles, %d configurations and a command of %d words: at least one check and profile, at most %d, %d, %d and %d",
			len(r.Checks), len(r.Profiles), len(r.Configurations), len(r.Reproduce), maxChecks, maxProfiles, limits.Roles, MaxArguments)
	}
	for _, text := range r.texts() {
		if len(text) > maxText || !limits.Line(text) {
			return fmt.Errorf("a text is not one line of at most %d bytes: %s", maxText, quote(text))
		}
	}
	return errors.Join(r.checkConfigurations(), r.checkChecks(), r.checkProfiles())
}

func (r *Report) texts() []string {
	texts := []string{r.File, r.SuiteVersion, r.Plugin, r.PluginVersion, r.Machine.OS, r.Machine.Architecture, r.Machine.Kernel}
	for _, check := range r.Checks {
		texts = append(texts, check.Check, check.Reason)
	}
	for _, profile := range r.Profiles {
		texts = append(texts, profile.Profile)
	}
	for _, configuration := range r.Configurations {
		texts = append(texts, configuration.Role)
	}
	return append(texts, r.Reproduce...)
}

func (r *Report) checkConfigurations() error {
	for _, configuration := range r.Configurations {
		if configuration.Role == "" || !limits.DigestOK(configuration.Digest) {
			return fmt.Errorf("the configuration of role %s has no digest", quote(configuration.Role))
		}
	}
	return nil
}

func (r *Report) checkChecks() error {
	seen := make(map[string]bool)
	for _, check := range r.Checks {
		switch {
		case check.Check == "" || seen[check.Check]:
			return fmt.Errorf("the check %s is there twice, or has no name", quote(check.Check))
		case !slices.Contains([]string{Pass, Fail, Skip, NotRun}, check.Status):
			return fmt.Errorf("the check %s ended with %s", quote(check.Check), quote(check.Status))
		case check.Seconds < 0:
			return fmt.Errorf("the check %s took %v seconds", quote(check.Check), check.Seconds)
		case !slices.ContainsFunc(r.Profiles, func(p Profile) bool { return p.Profile == check.Profile }):
			return fmt.Errorf("the check %s belongs to the profile %s, of which nothing is said", quote(check.Check), quote(check.Profile))
		}
		seen[check.Check] = true
	}
	return nil
}

// checkProfiles holds the verdicts against the checks.
func (r *Report) checkProfiles() error {
	seen := make(map[string]bool)
	for _, profile := range r.Profiles {
		if profile.Profile == "" || len(profile.Profile) > maxName || seen[profile.Profile] {
			return fmt.Errorf("the profile %s is there twice, or has no name of at most %d bytes", quote(profile.Profile), maxName)
		}
		seen[profile.Profile] = true
		follow := []string{NotApplicable, Conforms}
		for _, check := range r.Checks {
			switch {
			case check.Profile != profile.Profile || follow[0] == DoesNotConform:
			case check.Status == Fail:
				follow = []string{DoesNotConform}
			case check.Status == NotRun:
				follow = []string{Incomplete}
			case check.Status == Pass && follow[0] == NotApplicable:
				follow = []string{Conforms}
			}
		}
		if !slices.Contains(follow, profile.Verdict) {
			return fmt.Errorf("the profile %s is said to be %s, and by its checks it is %s", quote(profile.Profile), quote(profile.Verdict), follow[0])
		}
	}
	return nil
}
