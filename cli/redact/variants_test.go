//go:build !soak

package redact_test

// longLine is how long the lines are that are meant to take long. Those of the soak are longer.
const longLine = 1 << 12
