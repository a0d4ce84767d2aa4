package role

import (
	"context"
	"net"
	"slices"
	"sync"
)

// unproven are a listener's connections that are still in the handshake.
type unproven struct {
	mu    sync.Mutex
	peers []*unprovenPeer // oldest first
}

// unprovenPeer is one of them.
type unprovenPeer struct {
	conn net.Conn
	host string // the remote host
	// ctx ends when the connection must close.
	ctx    context.Context
	cancel context.CancelFunc
}

// end closes the connection.
func (p *unprovenPeer) end() {
	p.cancel()
	_ = p.conn.Close() // nothing was answered on it
}

// enter adds a connection. If there is no room, it removes the oldest one of the host with the most connections, which the caller must end.
func (u *unproven) enter(ctx context.Context, conn net.Conn) (entered, former *unprovenPeer) {
	entered = &unprovenPeer{conn: conn, host: hostOf(conn.RemoteAddr())}
	entered.ctx, entered.cancel = context.WithCancel(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.peers) >= maxHandshakes {
		former = u.leastWanted()
		u.remove(former)
	}
	u.peers = append(u.peers, entered)
	return entered, former
}

func (u *unproven) leastWanted() *unprovenPeer {
	of := make(map[string]int)
	for _, peer := range u.peers {
		of[peer.host]++
	}
	most := u.peers[0]
	for _, peer := range u.peers {
		if of[peer.host] > of[most.host] {
			most = peer
		}
	}
	return most
}

// leave removes a connection, and reports whether it was still there and not removed for a newer one.
func (u *unproven) leave(peer *unprovenPeer) (inside bool) {
	u.mu.Lock()
	inside = slices.Contains(u.peers, peer)
	u.remove(peer)
	u.mu.Unlock()
	peer.cancel()
	return inside
}

func (u *unproven) remove(peer *unprovenPeer) {
	u.peers = slices.DeleteFunc(u.peers, func(other *unprovenPeer) bool { return other == peer })
}

// hostOf returns the host of an address.
func hostOf(address net.Addr) string {
	host, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return address.String()
	}
	return host
}
