package output

import "testing"

func TestTolerance(t *testing.T) {
	for _, test := range []struct{ voters, healthy, want int }{
		{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {3, 3, 1}, {3, 2, 0}, {3, 1, 0}, {4, 4, 1}, {5, 5, 2}, {5, 4, 1}, {7, 7, 3},
	} {
		if got := tolerates(test.voters, test.healthy); got != test.want {
			t.Errorf("%d of %d voters tolerate %d failures, want %d", test.healthy, test.voters, got, test.want)
		}
	}
	for text, tolerance := range map[string]Tolerance{
		"": {},
		"The store has 1 voter, and tolerates 0 failures.":                     {Voters: 1, Healthy: 1},
		"The store has 3 voters, 3 of them healthy, and tolerates 1 failure.":  {Voters: 3, Healthy: 3, Tolerates: 1},
		"The store has 5 voters, 5 of them healthy, and tolerates 2 failures.": {Voters: 5, Healthy: 5, Tolerates: 2},
	} {
		if got := tolerance.String(); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}
