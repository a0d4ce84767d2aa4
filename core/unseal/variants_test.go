//go:build !soak

package unseal_test

// seed of the histories. The soak has another one each time.
const seed = "1"
