package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Version is that of the format of Report. It changes when a field changes its meaning or goes away.
const Version = 1

// Report is the file var/bench/results.json: one run.
type Report struct {
	Version int       `json:"version"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Selection is the regular expression that chose the measures; empty: all of them.
	Selection string   `json:"selection"`
	Machine   Machine  `json:"machine"`
	Results   []Result `json:"results"`
}

// Result is one figure of a measure.
type Result struct {
	// Measure is the name of the measure, Name that of the figure in it.
	Measure string `json:"measure"`
	Name    string `json:"name"`
	// What is measured, against what; Against is empty if there is nothing to compare with.
	What    string `json:"what"`
	Against string `json:"against,omitempty"`
	// Unit is that of the samples.
	Unit string `json:"unit"`
	// Pairs or Samples are the raw figures, in the order in which they were measured.
	Pairs   []Pair    `json:"pairs,omitempty"`
	Samples []float64 `json:"samples,omitempty"`
	// A and B are the medians of the two sides.
	A float64 `json:"a,omitempty"`
	B float64 `json:"b,omitempty"`
	// Value is what is judged, as Statistic says.
	Statistic Statistic `json:"statistic,omitempty"`
	Value     float64   `json:"value"`
	// Interval holds the true median of the pairs with the probability Coverage.
	Interval *Interval `json:"interval,omitempty"`
	Coverage float64   `json:"coverage,omitempty"`
	Reach    Reach     `json:"reach"`
	Verdict  Verdict   `json:"verdict"`
	// Error is why there is no figure.
	Error string `json:"error,omitempty"`
	// Notes are what a reader has to know, such as how it was measured.
	Notes []string `json:"notes,omitempty"`
}

// Statistic is how a figure is made from what was measured.
type Statistic string

// The statistics.
const (
	// MedianRatio is the median of A/B over the pairs.
	MedianRatio Statistic = "median ratio"
	// MedianDifference is the median of A-B over the pairs.
	MedianDifference Statistic = "median difference"
	// P50 and P99 are quantiles of the samples, Largest is the largest one.
	P50     Statistic = "p50"
	P99     Statistic = "p99"
	Largest Statistic = "largest"
)

// Reach is what a figure is to be.
type Reach struct {
	// Bound says which end of the figure is compared: "value" or "low", the low end of its interval.
	Bound string `json:"bound,omitempty"`
	// AtMost and AtLeast are the limit; one of them is set, or none where the figure is only reported.
	AtMost  *float64 `json:"at_most,omitempty"`
	AtLeast *float64 `json:"at_least,omitempty"`
}

// Any is the reach of a figure that is only reported.
func Any() Reach { return Reach{} }

// AtMost is the reach of a figure that is not to be larger.
func AtMost(limit float64) Reach { return Reach{Bound: "value", AtMost: &limit} }

// LowAtLeast is the reach of a figure the low end of whose interval is not to be smaller.
func LowAtLeast(limit float64) Reach { return Reach{Bound: "low", AtLeast: &limit} }

// Verdict is whether a figure is what it is to be.
type Verdict string

// The verdicts.
const (
	Met    Verdict = "met"
	Missed Verdict = "missed"
	// Reported: there is nothing that it is to be.
	Reported Verdict = "reported"
	// Failed: it could not be measured.
	Failed Verdict = "failed"
	// Skipped: this machine or user cannot measure it.
	Skipped Verdict = "not measured"
)

// ErrCannotRun is wrapped by the error of a measure that needs what this machine or user does not have.
var ErrCannotRun = errors.New("cannot run")

func (r Reach) judge(value float64, interval *Interval) Verdict {
	if r.AtMost == nil && r.AtLeast == nil {
		return Reported
	}
	if r.Bound == "low" {
		if interval == nil {
			return Failed
		}
		value = interval.Low
	}
	if (r.AtMost != nil && value > *r.AtMost) || (r.AtLeast != nil && value < *r.AtLeast) {
		return Missed
	}
	return Met
}

// OfPairs fills in a result from its pairs, by MedianRatio or MedianDifference.
func OfPairs(r Result, statistic Statistic, reach Reach, pairs []Pair) Result {
	r.Pairs, r.Statistic, r.Reach = pairs, statistic, reach
	var a, b, compared []float64
	for _, pair := range pairs {
		a, b = append(a, pair.A), append(b, pair.B)
		switch statistic {
		case MedianDifference:
			compared = append(compared, pair.A-pair.B)
		default:
			if pair.B == 0 {
				return OfError(r, errors.New("the bare part measured nothing"))
			}
			compared = append(compared, pair.A/pair.B)
		}
	}
	interval, coverage, err := MedianInterval(compared)
	if err != nil {
		return OfError(r, err)
	}
	r.A, r.B, r.Value, r.Interval, r.Coverage = Median(a), Median(b), Median(compared), &interval, coverage
	r.Verdict = reach.judge(r.Value, r.Interval)
	return r
}

// OfSamples fills in a result from samples, by a quantile or Largest.
func OfSamples(r Result, statistic Statistic, reach Reach, samples []float64) Result {
	r.Samples, r.Statistic, r.Reach = samples, statistic, reach
	if len(samples) == 0 {
		return OfError(r, errors.New("nothing was measured"))
	}
	switch statistic {
	case P99:
		r.Value = Quantile(samples, 0.99)
	case P50:
		r.Value = Quantile(samples, 0.5)
	default:
		r.Value = slices.Max(samples)
	}
	if interval, coverage, err := MedianInterval(samples); err == nil && statistic == P50 {
		r.Interval, r.Coverage = &interval, coverage
	}
	r.Verdict = reach.judge(r.Value, nil)
	return r
}

// OfError fills in a result that could not be had.
func OfError(r Result, err error) Result {
	r.Verdict, r.Error = Failed, err.Error()
	if errors.Is(err, ErrCannotRun) {
		r.Verdict = Skipped
	}
	return r
}

// Failed says whether a measure has failed. A reach that was missed is no failure of the run, nor is what this machine or user cannot measure.
func (r *Report) Failed() bool {
	for _, result := range r.Results {
		if result.Verdict == Failed {
			return true
		}
	}
	return len(r.Results) == 0
}

// Write writes the report to a file as a whole, and makes the directory if there is none.
func (r *Report) Write(path string) error {
	document, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft.Name()) }()
	_, err = draft.Write(append(document, '\n'))
	if err = errors.Join(err, draft.Chmod(0o644), draft.Close()); err != nil {
		return err
	}
	return os.Rename(draft.Name(), path)
}

// Read reads a report. It fails if the file is of another version.
func Read(path string) (*Report, error) {
	document, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var report Report
	if err := json.Unmarshal(document, &report); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if report.Version != Version {
		return nil, fmt.Errorf("%s has version %d, want %d: run the measures again", path, report.Version, Version)
	}
	return &report, nil
}
