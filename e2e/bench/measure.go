package bench

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// Measure is something that is measured.
type Measure struct {
	// Name is what RUN= chooses.
	Name string
	// What it measures, in a few words.
	What string
	// Run measures. Results that it could get are returned with an error too.
	Run func(ctx context.Context, say func(format string, arguments ...any)) ([]Result, error)
}

// Select returns the measures whose name an expression matches, all of it for the empty one. It fails if there is none.
func Select(measures []Measure, expression string) ([]Measure, error) {
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("RUN=%s is no regular expression: %w", expression, err)
	}
	var selected []Measure
	var names []string
	for _, measure := range measures {
		names = append(names, measure.Name)
		if pattern.MatchString(measure.Name) {
			selected = append(selected, measure)
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("RUN=%s chooses none of the measures, which are %q", expression, names)
	}
	return selected, nil
}

// Run runs measures one after another, as long as ctx lets it. One that fails is in the report with its error, and the others are run all the same.
func Run(ctx context.Context, measures []Measure, say func(format string, arguments ...any)) []Result {
	var results []Result
	for _, measure := range measures {
		say("%s: %s", measure.Name, measure.What)
		begun := time.Now()
		found, err := measure.Run(ctx, func(format string, arguments ...any) { say("  "+format, arguments...) })
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("nothing was measured")
		}
		for i := range found {
			found[i].Measure = measure.Name
		}
		results = append(results, found...)
		if err != nil {
			missing := OfError(Result{Measure: measure.Name, Name: "-", What: measure.What}, err)
			say("  %s: %v", missing.Verdict, err)
			results = append(results, missing)
		}
		say("  %.0f s", time.Since(begun).Seconds())
	}
	return results
}
