package bench_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// upTo returns the numbers from 1 to n, out of order.
func upTo(n int) []float64 {
	var values []float64
	for i := range n {
		values = append(values, float64(1+(i*7+3)%n))
	}
	slices.Sort(values)
	values = slices.Compact(values)
	if len(values) != n {
		panic("n is a multiple of 7")
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { values[i], values[j] = values[j], values[i] })
	return values
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {upTo(30), 15.5}, {upTo(101), 51}} {
		before := slices.Clone(test.values)
		if got := bench.Median(test.values); got != test.want {
			t.Errorf("Median(%v) = %v, want %v", test.values, got, test.want)
		}
		if !slices.Equal(before, test.values) {
			t.Errorf("Median sorted what it was given")
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, test := range []struct {
		n    int
		q    float64
		want float64
	}{{100, 0.99, 99}, {120, 0.99, 119}, {101, 0.99, 100}, {100, 0.5, 50}, {1, 0.99, 1}, {10, 0, 1}, {10, 1, 10}} {
		if got := bench.Quantile(upTo(test.n), test.q); got != test.want {
			t.Errorf("the %v quantile of 1 to %d is %v, want %v", test.q, test.n, got, test.want)
		}
	}
}

// The ranks are those of the tables of the sign test.
func TestMedianIntervalRanks(t *testing.T) {
	for _, test := range []struct {
		n         int
		low, high float64
		coverage  float64
	}{
		{6, 1, 6, 0.96875}, {8, 1, 8, 0.9921875}, {9, 2, 8, 0.9609375}, {10, 2, 9, 0.978515625}, {30, 10, 21, 0.95722}, {40, 14, 27, 0.96152},
		{100, 40, 61, 0.96480},
	} {
		interval, coverage, err := bench.MedianInterval(upTo(test.n))
		if err != nil || interval.Low != test.low || interval.High != test.high || math.Abs(coverage-test.coverage) > 1e-5 {
			t.Errorf("%d values: %v with %v, error %v; want %v to %v with %v", test.n, interval, coverage, err, test.low, test.high, test.coverage)
		}
	}
	for n := range 6 {
		if interval, _, err := bench.MedianInterval(make([]float64, n)); err == nil {
			t.Errorf("%d values: %v, want an error", n, interval)
		}
	}
}

// What the interval promises holds also where figures are nothing like normal.
func TestMedianIntervalCovers(t *testing.T) {
	source := rand.New(rand.NewPCG(3, 4))
	const rounds = 4000
	held := 0
	for range rounds {
		values := make([]float64, 30)
		for i := range values {
			values[i] = source.ExpFloat64()
		}
		interval, _, err := bench.MedianInterval(values)
		if err != nil {
			t.Fatal(err)
		}
		if interval.Low <= math.Ln2 && math.Ln2 <= interval.High {
			held++
		}
	}
	// 95.7 % are expected, with a standard deviation of 0.32 %.
	if share := float64(held) / rounds; share < 0.945 || share > 0.97 {
		t.Errorf("of the intervals %.1f %% hold the median, want 95.7 %%", 100*share)
	}
}
