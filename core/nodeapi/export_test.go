package nodeapi

import (
	"testing"
	"time"
)

// WaitsForEver makes a server wait without end for handshakes and, when it stops, for calls: if it waits where it should not, the test hangs.
// Call it before the server is made.
func WaitsForEver(t *testing.T) {
	grace, handshake := stopGrace, handshakeTimeout
	stopGrace, handshakeTimeout = 24*time.Hour, 24*time.Hour
	t.Cleanup(func() { stopGrace, handshakeTimeout = grace, handshake })
}
