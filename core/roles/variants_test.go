//go:build !soak

package roles_test

// ordinaryTests are the tests that run as an ordinary user, too. The soak runs all of them.
const ordinaryTests = "^TestRealRolesComeBack$"

// seed of the histories; "0": another one each time, which a failure prints.
const seed = "1"
