package attest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// StatementType is the type of the statement.
	StatementType = "https://in-toto.io/Statement/v1"
	// PredicateType is the type of its predicate: the result of running tests.
	PredicateType = "https://in-toto.io/attestation/test-result/v0.1"

	// suite is the program that was run, as a package URL before its version.
	suite = "pkg:golang/github.com/reeveproject/reeve/sdk/conformance@"
	// configurationOf begins the name of a configuration with which a role was started.
	configurationOf = "configuration of role "
	digestPrefix    = "sha256:"
)

type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     predicate    `json:"predicate"`
}

// descriptor is an in-toto ResourceDescriptor, as far as it is used.
type descriptor struct {
	Name   string  `json:"name,omitempty"`
	URI    string  `json:"uri,omitempty"`
	Digest *digest `json:"digest,omitempty"`
}

type digest struct {
	SHA256 string `json:"sha256"`
}

type predicate struct {
	Result        string       `json:"result"`
	Configuration []descriptor `json:"configuration"`
	PassedTests   []string     `json:"passedTests"`
	WarnedTests   []string     `json:"warnedTests"`
	FailedTests   []string     `json:"failedTests"`
	// Conformance is Reeve's own: readers that do not know it read the rest as it is.
	Conformance *Conformance `json:"reeve_conformance"`
}

func (r *Report) statement() statement {
	configuration := []descriptor{{Name: "reeve-conformance", URI: suite + r.SuiteVersion}}
	for _, of := range r.Configurations {
		configuration = append(configuration, descriptor{Name: configurationOf + of.Role, Digest: &digest{strings.TrimPrefix(of.Digest, digestPrefix)}})
	}
	return statement{
		Type: StatementType, Subject: []descriptor{{Name: r.File, Digest: &digest{strings.TrimPrefix(r.Digest, digestPrefix)}}}, PredicateType: PredicateType,
		Predicate: predicate{
			Result: r.Result(), Configuration: configuration, PassedTests: r.with(Pass), WarnedTests: []string{}, FailedTests: r.with(Fail), Conformance: &r.Conformance,
		},
	}
}

// report checks a statement and returns what it says.
func (s *statement) report() (*Report, error) {
	switch {
	case s.Type != StatementType:
		return nil, fmt.Errorf("its type is %s, and a report is a %q", quote(s.Type), StatementType)
	case s.PredicateType != PredicateType:
		return nil, fmt.Errorf("its predicate is %s, and that of a report is %q", quote(s.PredicateType), PredicateType)
	case len(s.Subject) != 1 || s.Subject[0].Digest == nil:
		return nil, fmt.Errorf("it is about %d things, and a report is about one executable with its digest", len(s.Subject))
	case s.Predicate.Conformance == nil:
		return nil, errors.New("it is of another suite: it has no field reeve_conformance")
	}
	report := &Report{File: s.Subject[0].Name, Digest: digestPrefix + s.Subject[0].Digest.SHA256, Conformance: *s.Predicate.Conformance}
	for _, of := range s.Predicate.Configuration {
		if role, ok := strings.CutPrefix(of.Name, configurationOf); ok && of.Digest != nil {
			report.Configurations = append(report.Configurations, Configuration{Role: role, Digest: digestPrefix + of.Digest.SHA256})
		}
	}
	if err := report.check(); err != nil {
		return nil, err
	}
	// Whoever reads only what the predicate defines is to read the same as who reads the rest.
	if s.Predicate.Result != report.Result() {
		return nil, fmt.Errorf("its result is %s, and by its checks it is %q", quote(s.Predicate.Result), report.Result())
	}
	if !slices.Equal(s.Predicate.PassedTests, report.with(Pass)) || !slices.Equal(s.Predicate.FailedTests, report.with(Fail)) || len(s.Predicate.WarnedTests) > 0 {
		return nil, errors.New("its lists of tests (passedTests, warnedTests, failedTests) are not those of its checks")
	}
	if !slices.ContainsFunc(s.Predicate.Configuration, func(of descriptor) bool { return of.URI == suite+report.SuiteVersion }) {
		return nil, fmt.Errorf("its configuration does not name the suite: %s", suite+report.SuiteVersion)
	}
	return report, nil
}
