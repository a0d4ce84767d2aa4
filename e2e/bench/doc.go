// Package bench measures Reeve against the bare parts that it is made of, so that its figures mean something on any machine.
//
// A measure compares two ways of doing one thing in pairs: each pair does it both ways, one right after the other, and the order changes from pair
// to pair. What drifts on the machine while a measure runs (its clock rate, its neighbours, the state of its disk) so meets both sides alike, and
// cancels in the ratio or the difference of the pair. Of the pairs the median is reported, with an interval that holds the true median with a
// probability of at least 95 %: the exact interval of order statistics, which assumes of the figures only that the pairs are independent and
// alike (see MedianInterval). A measure without anything to compare with reports quantiles.
//
// The package owns the report (var/bench/results.json, whose format is Report). What is measured is in the package measures.
package bench
