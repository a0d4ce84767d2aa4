//go:build soak

package usage_test

// checks is how many histories are tried.
const checks = "100"
