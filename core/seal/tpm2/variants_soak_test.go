//go:build soak

package tpm2_test

const (
	manyTimes = 500
	someBits  = 1
	someBytes = 1
)
