//go:build !soak

// Package soak tells a test whether it runs in the soak tier: `make soak` builds the tests with the tag soak. The gate runs one case of each kind, and soak runs every
// variant. A test that only soak runs is in a file *_soak_test.go with that tag.
package soak

// Enabled says whether the tests were built with the tag soak.
const Enabled = false
