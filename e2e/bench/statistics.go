package bench

import (
	"fmt"
	"math"
	"slices"
)

// Confidence is the probability with which an interval holds what it is said to hold.
const Confidence = 0.95

// Interval is from Low to High, both included.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Median returns the middle of some values: of an even number, half-way between the two in the middle. It panics if there are none.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Quantile returns the smallest value that at least the fraction q of the values do not exceed (the nearest rank): what is reported was measured. It
// panics if there are no values.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	// The product may be a hair above a whole number that it is meant to be.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// MedianInterval returns the narrowest interval between two of the values, as far from the lowest as from the highest, that holds the median of
// what the values are drawn from with a probability of at least Confidence, and that probability. Whatever the distribution, the number of values
// below its median is binomial, so this is exact. It fails if there are too few values: six are needed.
func MedianInterval(values []float64) (Interval, float64, error) {
	n := len(values)
	sorted := slices.Sorted(slices.Values(values))
	// The interval from the (k+1)-th value to the (k+1)-th last misses the median if at most k values are on one side of it.
	miss, coverage, skip := 0.0, 0.0, -1
	for k := 0; k < (n+1)/2; k++ {
		miss += 2 * binomial(n, k)
		if 1-miss < Confidence {
			break
		}
		coverage, skip = 1-miss, k
	}
	if skip < 0 {
		return Interval{}, 0, fmt.Errorf("%d values are too few for an interval of their median", n)
	}
	return Interval{Low: sorted[skip], High: sorted[n-1-skip]}, coverage, nil
}

// binomial is the probability of exactly k heads in n throws of a coin.
func binomial(n, k int) float64 {
	total, _ := math.Lgamma(float64(n + 1))
	heads, _ := math.Lgamma(float64(k + 1))
	tails, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(total - heads - tails - float64(n)*math.Ln2)
}
