package metrics

import (
	"bytes"
	"errors"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/reeveproject/reeve/proto/limits"
)

// What the text of a role may have at most. They bound the memory and the time that reading it takes; a component with rich metrics has a tenth of it.
const (
	// maxSamples is how many lines with a sample there may be.
	maxSamples = 20_000
	// maxLines is how many lines there may be in all: two of comments for every sample, if need be.
	maxLines = 3 * maxSamples
	// maxLine is how long a line may be, in bytes.
	maxLine = 16 << 10
	// maxLabels is how many labels a sample may have. The time to read one grows with their square.
	maxLabels = 64
)

// Why something of a role's metrics was left out: the label "reason" of reeve_role_metrics_rejected_total. docs/reference/metrics.md lists them.
type reason string

// Reasons for which all of a role's metrics are left out.
const (
	tooLarge  reason = "too_large"
	malformed reason = "malformed"
	noRoom    reason = "no_room"
)

// Reasons for which a family is.
const (
	reservedName    reason = "reserved_name"
	conflictingType reason = "conflicting_type"
	conflictingName reason = "conflicting_name"
	unsupportedType reason = "unsupported_type"
)

// Reasons for which a series is.
const (
	reservedLabel reason = "reserved_label"
	duplicate     reason = "duplicate"
	inconsistent  reason = "inconsistent"
)

// rejected says why the whole text of a role was left out.
type rejected struct {
	reason reason
	cause  error
}

func (r *rejected) Error() string { return r.cause.Error() }

// read makes families of the text of a role, and counts its samples. A text that is not wholly right is of no use: what is missing from it would look
// like what has stopped. It fails with *rejected.
func read(text []byte) (families map[string]*dto.MetricFamily, samples int, err error) {
	if samples, err = measure(text); err != nil {
		return nil, 0, &rejected{tooLarge, err}
	}
	defer func() {
		// The parser is not ours and the bytes are a stranger's.
		if cause := recover(); cause != nil {
			families, samples, err = nil, 0, &rejected{malformed, fmt.Errorf("the parser gave up: %v", cause)}
		}
	}()
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, 0, &rejected{malformed, errors.New("the last line has no end")}
	}
	// Names as they have always been: what has other ones could not be shown to everybody who reads version 0.0.4.
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err = parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, 0, &rejected{malformed, err}
	}
	return families, samples, nil
}

// measure checks that a text is within the bounds, before anything is made of it, and counts its samples.
func measure(text []byte) (samples int, err error) {
	if len(text) > limits.Metrics {
		return 0, fmt.Errorf("%d bytes; at most %d", len(text), limits.Metrics)
	}
	lines := 0
	for line := range bytes.Lines(text) {
		lines++
		if trimmed := bytes.TrimLeft(line, " \t"); len(trimmed) > 0 && trimmed[0] != '\n' && trimmed[0] != '#' {
			samples++
		}
		switch {
		case len(line) > maxLine:
			return 0, fmt.Errorf("line %d has %d bytes; at most %d", lines, len(line), maxLine)
		case lines > maxLines:
			return 0, fmt.Errorf("more than %d lines", maxLines)
		case samples > maxSamples:
			return 0, fmt.Errorf("more than %d samples", maxSamples)
		case labelsOf(line) > maxLabels:
			return 0, fmt.Errorf("line %d has more than %d labels", lines, maxLabels)
		}
	}
	return samples, nil
}

// labelsOf counts the labels of a line by the quotes around their values.
func labelsOf(line []byte) int {
	if line[0] == '#' {
		return 0
	}
	quotes, inside := 0, false
	for n := 0; n < len(line); n++ {
		switch {
		case line[n] == '"':
			quotes++
			inside = !inside
		case line[n] == '\\' && inside:
			n++
		}
	}
	return (quotes + 1) / 2
}
