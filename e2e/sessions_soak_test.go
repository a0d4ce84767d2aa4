//go:build soak

package e2e

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// TestSessionRenewed has a certificate that lives for seconds: it is renewed by itself, without the key, until its session ends.
func TestSessionRenewed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	up := c.Up(t)
	curator, node := up.Cluster.Curators[0], up.Node.APIAddress
	// What is done while the first certificate lasts has to be done by then on a busy machine too.
	const lifetime, session = 10 * time.Second, 30 * time.Second
	first, begun := login(t, curator, selfSigned(t, c.Path("owner.key")), lifetime, session)
	if got := atCurator(t, curator, first); time.Now().Before(first.Leaf.NotAfter) && got != codes.OK {
		t.Errorf("with a certificate that was just issued: %s", got)
	}
	if got := atNode(t, node, first); time.Now().Before(first.Leaf.NotAfter) && got != codes.OK {
		t.Errorf("at the node, with a certificate that was just issued: %s", got)
	}
	second, renewed := login(t, curator, first, time.Hour, time.Hour)
	ends := begun.GetSessionEnds().AsTime()
	if !renewed.GetSessionEnds().AsTime().Equal(ends) || second.Leaf.NotAfter.After(ends) || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Errorf("the session ended at %s and now ends at %s, the certificate at %s; it must not become longer", ends,
			renewed.GetSessionEnds().AsTime(), second.Leaf.NotAfter)
	}
	time.Sleep(time.Until(first.Leaf.NotAfter.Add(1100 * time.Millisecond))) // certificates know whole seconds
	// At the curator a handshake with it fails, which is as good.
	for name, got := range map[string]codes.Code{"curator": atCurator(t, curator, first), "node": atNode(t, node, first)} {
		if got != codes.Unauthenticated && got != codes.Unavailable {
			t.Errorf("at the %s, with a certificate that has ended: %s", name, got)
		}
	}
	if got := atCurator(t, curator, second); time.Now().Before(ends) && got != codes.OK {
		t.Errorf("with the renewed certificate: %s", got)
	}
	if got := atNode(t, node, second); time.Now().Before(ends) && got != codes.OK {
		t.Errorf("at the node, with the renewed certificate: %s", got)
	}
	time.Sleep(time.Until(ends.Add(1100 * time.Millisecond)))
	for name, got := range map[string]codes.Code{"curator": atCurator(t, curator, second), "node": atNode(t, node, second)} {
		if got != codes.Unauthenticated && got != codes.Unavailable {
			t.Errorf("at the %s, after the end of the session: %s", name, got)
		}
	}
}
