package conformance

import (
	"errors"
	"fmt"
	"testing"
)

// TestCannot holds that what this machine cannot show of one role hides no failure of another one.
func TestCannot(t *testing.T) {
	lacks, failure := &cannotError{"there is no sandbox"}, errors.New("it fails")
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{failure, false},
		{lacks, true},
		{fmt.Errorf("role a: %w", lacks), true},
		{fmt.Errorf("role a: %w", failure), false},
		{errors.Join(fmt.Errorf("role a: %w", lacks), fmt.Errorf("role b: %w", lacks)), true},
		{errors.Join(fmt.Errorf("role a: %w", failure), fmt.Errorf("role b: %w", lacks)), false},
		{errors.Join(errors.Join(fmt.Errorf("role a: %w", lacks)), failure), false},
		{fmt.Errorf("%w, and then %w", lacks, failure), false},
	} {
		if got := cannot(test.err); got != test.want {
			t.Errorf("%q: %t, want %t", test.err, got, test.want)
		}
	}
}
