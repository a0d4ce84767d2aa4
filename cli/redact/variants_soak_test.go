//go:build soak

package redact_test

// longLine is how long the lines are that are meant to take long.
const longLine = 1 << 16
