//go:build soak

package hostapi_test

const ordinaryTests = "."

// enough is how often a call must have got past the swapping of a file.
const enough = 40
