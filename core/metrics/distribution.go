package metrics

import (
	"cmp"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// tidy puts the parts of a histogram or summary in order, and reports whether they fit together: whoever reads a histogram relies on buckets that
// grow, and on all of its parts being there. Other series always fit.
func tidy(metric *dto.Metric) bool {
	if metric.Histogram != nil {
		return tidyHistogram(metric.Histogram)
	}
	if metric.Summary != nil {
		return tidySummary(metric.Summary)
	}
	return true
}

func tidyHistogram(h *dto.Histogram) bool {
	slices.SortFunc(h.Bucket, func(a, b *dto.Bucket) int { return cmp.Compare(a.GetUpperBound(), b.GetUpperBound()) })
	below := 0.0
	for n, bucket := range h.Bucket {
		count := max(bucket.GetCumulativeCountFloat(), float64(bucket.GetCumulativeCount()))
		switch {
		case math.IsNaN(bucket.GetUpperBound()) || math.IsNaN(count) || count < below:
			return false
		case n > 0 && bucket.GetUpperBound() == h.Bucket[n-1].GetUpperBound():
			return false
		}
		below = count
	}
	// The last bucket holds everything, and is the count too.
	complete := len(h.Bucket) > 0 && math.IsInf(h.Bucket[len(h.Bucket)-1].GetUpperBound(), 1) && h.SampleSum != nil
	return complete && max(h.GetSampleCountFloat(), float64(h.GetSampleCount())) == below
}

func tidySummary(s *dto.Summary) bool {
	if s.SampleCount == nil || s.SampleSum == nil {
		return false
	}
	slices.SortFunc(s.Quantile, func(a, b *dto.Quantile) int { return cmp.Compare(a.GetQuantile(), b.GetQuantile()) })
	for n, quantile := range s.Quantile {
		if n > 0 && quantile.GetQuantile() == s.Quantile[n-1].GetQuantile() {
			return false
		}
	}
	return true
}
