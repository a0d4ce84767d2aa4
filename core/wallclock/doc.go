// Package wallclock tells when the machine's clock was set: the timers of a program run on, and what was decided by the time of day would stand until
// somebody looks again.
//
// It owns one descriptor of the kernel's, watches nothing else, and publishes how often the clock was set.
package wallclock
