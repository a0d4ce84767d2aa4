//go:build soak

package sandbox_test

const ordinaryTests = "."
