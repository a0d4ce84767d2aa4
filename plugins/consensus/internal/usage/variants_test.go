//go:build !soak

package usage_test

// checks is how many histories are tried. The soak tries more.
const checks = "30"
