//go:build soak

package soak

// Enabled says whether the tests were built with the tag soak.
const Enabled = true
