//go:build !soak

package tpm2_test

// manyTimes is how often a secret is sealed and unsealed again; the soak does so 500 times.
const manyTimes = 50
