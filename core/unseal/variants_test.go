//go:build !soak

package unseal_test

const (
	// seed of the histories. The soak has another one each time.
	seed = "1"
	// histories is how many there are. The soak has 100.
	histories = "30"
	// damagesApart is how many of the places that the soak damages lie between two that the gate damages.
	damagesApart = 4
	// waysApart is at which of the steps a rotation is stopped for each way to go on: at every one for one of the two ways. The soak has both at each.
	waysApart = 2
)
