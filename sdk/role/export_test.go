package role

import (
	"net"
	"time"
)

// HandshakeTime is how long a peer has to prove itself.
const HandshakeTime = handshakeTime

// RenewNow has an instance ask for another SVID now, as if it were time. What it returns says whether there is one.
func RenewNow(host *Host) (renewed func() bool) {
	current, _ := host.prover.svid.Get()
	due := *current
	due.renew = time.Now()
	host.prover.svid.Set(&due)
	trust, _ := host.prover.trust.Get()
	host.prover.trust.Set(trust) // wakes the one who asks
	return func() bool {
		now, _ := host.prover.svid.Get()
		return now != &due
	}
}

// Expires is when the first of the two SVIDs expires by which a connection was made.
func Expires(conn net.Conn) time.Time { return conn.(*peerConn).ends }
