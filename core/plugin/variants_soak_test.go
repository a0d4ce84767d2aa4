//go:build soak

package plugin_test

const (
	momentsApart  = 1
	deepest       = 30_000 // more than a process has file descriptors
	launches      = 25
	ordinaryTests = "."
)
