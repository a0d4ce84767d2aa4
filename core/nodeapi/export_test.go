package nodeapi

import (
	"testing"
	"time"
)

// AwaitLateClients is for TestMain: on a busy machine, a handshake or the way of an answer may take long.
func AwaitLateClients() { answerGrace, handshakeTimeout = 5*time.Minute, 5*time.Minute }

// WaitsForEver makes a server wait without end for handshakes and, when it stops, for calls: if it waits where it should not, the test hangs.
// Call it before the server is made.
func WaitsForEver(t *testing.T) {
	grace, handshake := stopGrace, handshakeTimeout
	stopGrace, handshakeTimeout = 24*time.Hour, 24*time.Hour
	t.Cleanup(func() { stopGrace, handshakeTimeout = grace, handshake })
}
