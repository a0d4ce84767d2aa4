//go:build !soak

package hostapi_test

// ordinaryTests are those that run as an ordinary user, too: what is decided by the user. The soak runs all of them.
const ordinaryTests = "^(TestEveryRPC|TestOpenAsOrdinaryUser|TestSharedUser|TestFilesThatAreRefused|TestSetHostnameWithoutTheRight|TestWorkloadAPI)$"

// enough is how often a call must have got past the swapping of a file.
const enough = 10
