package output

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// Conformance is the document of `reeve plugin test`: the report of the conformance suite.
type Conformance struct {
	SuiteVersion string `json:"suite_version"`
	// Executable is the file as it was given, Digest that of its bytes; empty: it cannot be read.
	Executable string `json:"executable"`
	Digest     string `json:"digest"`
	// Plugin and PluginVersion are as in the manifest; empty: it gave none.
	Plugin        string `json:"plugin"`
	PluginVersion string `json:"plugin_version"`
	// Platform is that of the machine, such as linux/amd64, Processors how many of it the suite had.
	Platform   string     `json:"platform"`
	Processors int        `json:"processors"`
	Started    *time.Time `json:"started"`
	Seconds    float64    `json:"seconds"`
	// Results are those of all checks, in the order in which they were run.
	Results []CheckResult `json:"results"`
	// Figures are what was measured of the roles.
	Figures []Figure `json:"figures"`
	// Blocked are the roles that this machine kept from their work.
	Blocked  []BlockedRole    `json:"blocked"`
	Verdicts []ProfileVerdict `json:"verdicts"`
}

// Figure is something that the suite measured of a role.
type Figure struct {
	Role string `json:"role"`
	// Name is what it is of, such as "memory", and Unit in what Value is.
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// BlockedRole is a role that a machine kept from its work, and what it said that it lacks.
type BlockedRole struct {
	Role   string `json:"role"`
	Reason string `json:"reason"`
}

// CheckResult is how a check of the suite ended.
type CheckResult struct {
	Check   string `json:"check"`
	Group   string `json:"group"`
	Profile string `json:"profile"`
	// Sentence is what the check demands, and why.
	Sentence string `json:"sentence"`
	// Status is "pass", "fail", "skip" or "not run".
	Status string `json:"status"`
	// Reason is what was seen, or why the check was skipped or not run; after a pass it may be empty.
	Reason  string  `json:"reason"`
	Seconds float64 `json:"seconds"`
}

// ProfileVerdict is what the suite says of a profile: "conforms", "does not conform", "incomplete" or, if the manifest declares absent all that
// the profile is about, "not applicable".
type ProfileVerdict struct {
	Profile string `json:"profile"`
	Verdict string `json:"verdict"`
}

// Conforms reports whether the plugin conforms to every profile that applies to it.
func (c Conformance) Conforms() bool {
	some := false
	for _, profile := range c.Verdicts {
		switch profile.Verdict {
		case "conforms":
			some = true
		case "not applicable":
		default:
			return false
		}
	}
	return some
}

// Unmet are those of the checks with these IDs that have neither passed nor been skipped, and whatever else has failed.
func (c Conformance) Unmet(checks []string) (unmet []string) {
	for _, result := range c.Results {
		asked := slices.Contains(checks, result.Check)
		if result.Status == "fail" || asked && result.Status == "not run" {
			unmet = append(unmet, result.Check)
		}
	}
	return unmet
}

// notAsked is the reason of the suite for a check that was not run because others were asked for.
const notAsked = "it was not asked for"

func (c Conformance) table(w io.Writer, _ time.Time) {
	row(w, "CHECK", "RESULT", "TIME", "REASON")
	count := make(map[string]int)
	for _, result := range c.Results {
		count[result.Status]++
		if result.Status == "not run" && result.Reason == notAsked {
			continue // there are many, and whoever asked for others knows
		}
		row(w, result.Check, result.Status, strconv.FormatFloat(result.Seconds, 'f', 2, 64)+"s", result.Reason)
	}
	for _, result := range c.Results {
		if result.Status == "fail" {
			_, _ = fmt.Fprintf(w, "\n%s demands: %s\n", Clean(result.Check), Clean(result.Sentence))
		}
	}
	if len(c.Figures) > 0 {
		_, _ = fmt.Fprintln(w)
		row(w, "ROLE", "FIGURE", "VALUE")
	}
	for _, figure := range c.Figures {
		row(w, figure.Role, figure.Name, strconv.FormatFloat(figure.Value, 'f', 2, 64)+" "+figure.Unit)
	}
	name := Clean(c.Plugin + " " + c.PluginVersion)
	if c.Plugin == "" {
		name = Clean(c.Executable)
	}
	_, _ = fmt.Fprintf(w, "\n%s: %d passed, %d failed, %d skipped, %d not run in %.1f s, suite %s\n", name, count["pass"], count["fail"], count["skip"], count["not run"],
		c.Seconds, Clean(c.SuiteVersion))
	for _, role := range c.Blocked {
		_, _ = fmt.Fprintf(w, "role %s was Blocked on this machine (%s): the suite could not test it at work\n", Clean(role.Role), Clean(role.Reason))
	}
	for _, profile := range c.Verdicts {
		_, _ = fmt.Fprintf(w, "profile %s: %s\n", Clean(profile.Profile), Clean(profile.Verdict))
	}
}

// junit is a report as the services that run tests read it.
type junit struct {
	XMLName  xml.Name `xml:"testsuite"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Time     string   `xml:"time,attr"`
	At       string   `xml:"timestamp,attr,omitempty"`
	// Properties are the figures.
	Properties []junitProperty `xml:"properties>property,omitempty"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr"`
	Failure *junitText `xml:"failure"`
	Error   *junitText `xml:"error"`
	Skipped *junitText `xml:"skipped"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// PrintJUnit writes the report in the XML of JUnit. A check that was not run is an error there: it says nothing of the plugin, and nobody may take it for a pass.
func (c Conformance) PrintJUnit(w io.Writer) error {
	suite := junit{Name: "reeve conformance: " + Clean(c.Executable), Tests: len(c.Results), Time: seconds(c.Seconds)}
	if c.Started != nil {
		suite.At = c.Started.UTC().Format("2006-01-02T15:04:05")
	}
	for _, result := range c.Results {
		one := junitCase{Class: Clean(result.Group), Name: Clean(result.Check), Time: seconds(result.Seconds)}
		text := &junitText{Message: Clean(result.Reason), Text: Clean(result.Sentence)}
		switch result.Status {
		case "fail":
			suite.Failures++
			one.Failure = text
		case "skip":
			suite.Skipped++
			one.Skipped = text
		case "not run":
			suite.Errors++
			one.Error = text
		}
		suite.Cases = append(suite.Cases, one)
	}
	for _, figure := range c.Figures {
		suite.Properties = append(suite.Properties, junitProperty{Clean(figure.Role + ": " + figure.Name + " (" + figure.Unit + ")"), strconv.FormatFloat(figure.Value, 'f', 3, 64)})
	}
	document, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, document)
	return err
}

func seconds(of float64) string { return strconv.FormatFloat(of, 'f', 3, 64) }
