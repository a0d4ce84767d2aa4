//go:build soak

package tpm2_test

const manyTimes = 500
