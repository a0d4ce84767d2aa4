//go:build !soak

package tpm2_test

// manyTimes is how often a secret is sealed and unsealed again; the soak does so 500 times.
const manyTimes = 20

// someBits is by how many bits the places lie apart at which a sealed form is damaged. It is no multiple of 8, so that every bit of a byte has its turn.
// The soak damages every bit.
const someBits = 13

// someBytes is by how many bytes the places lie apart at which the private part is damaged for the TPM to see.
const someBytes = 7
