//go:build !soak

package sandbox_test

// ordinaryTests are those that run as an ordinary user, too: one of each kind of bound. The soak runs all of them.
const ordinaryTests = "^(TestCalls|TestPorts|TestFiles|TestView|TestOthers|TestEndsWithCore)$"
