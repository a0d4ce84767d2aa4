//go:build soak

package kubernetes_test

import (
	"os"
	"testing"
)

// TestControlPlaneOfAnOrdinaryUser is the same where all roles have one user.
func TestControlPlaneOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("TestControlPlane is that: the test does not run as root")
	}
	newPlane(t, shared.OrdinaryCluster(t)).lives(t)
}
