//go:build !soak

package roles_test

// ordinaryTests are the tests that run as an ordinary user, too. The soak runs all of them.
const ordinaryTests = "^TestRealRolesComeBack$"

// seed of the histories; "0": another one each time, which a failure prints.
const seed = "1"

// checks is how many histories there are. The soak has more of them.
const checks = 500
