package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	m := r.Machine
	columns := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	say := func(format string, arguments ...any) { _, _ = fmt.Fprintf(columns, format, arguments...) }
	say("%s, %d cores, %s\n", m.CPU, m.Cores, m.Kernel)
	say("%s on %s, %s, %s user, load before %s, commit %s\n\n", m.Filesystem, m.Device, m.Go, m.User, m.Load, m.Commit)
	_, _ = fmt.Fprintln(columns, "MEASURE\tFIGURE\tN\tREEVE\tBARE\tSTATISTIC\tVALUE\t95 % INTERVAL\tREACH\tVERDICT")
	for _, result := range r.Results {
		if result.Verdict == Failed || result.Verdict == Skipped {
			say("%s\t%s\t\t\t\t\t\t\t\t%s\n", result.Measure, result.Name, result.Verdict)
			continue
		}
		a, b, interval := "", "", ""
		if len(result.Pairs) > 0 {
			a, b = quantity(result.A, result.Unit), quantity(result.B, result.Unit)
		}
		unit := result.Unit
		if result.Statistic == MedianRatio {
			unit = "×"
		}
		if result.Interval != nil {
			interval = quantity(result.Interval.Low, unit) + " to " + quantity(result.Interval.High, unit)
		}
		say("%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", result.Measure, result.Name, len(result.Pairs)+len(result.Samples), a, b,
			result.Statistic, quantity(result.Value, unit), interval, result.Reach.text(unit), result.Verdict)
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for _, result := range r.Results {
		if result.Error != "" {
			if _, err := fmt.Fprintf(w, "\n%s, %s: %s\n", result.Measure, result.Name, result.Error); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r Reach) text(unit string) string {
	switch {
	case r.AtMost != nil:
		return "≤ " + quantity(*r.AtMost, unit)
	case r.AtLeast != nil && r.Bound == "low":
		return "low end ≥ " + quantity(*r.AtLeast, unit)
	case r.AtLeast != nil:
		return "≥ " + quantity(*r.AtLeast, unit)
	}
	return ""
}

// quantity shows a figure with three digits that mean something.
func quantity(value float64, unit string) string {
	text := "0"
	if value != 0 {
		digits := 2 - int(math.Floor(math.Log10(math.Abs(value))))
		text = strconv.FormatFloat(value, 'f', min(max(digits, 0), 4), 64)
	}
	switch unit {
	case "":
		return text
	case "×":
		return text + "×"
	}
	return text + " " + unit
}
