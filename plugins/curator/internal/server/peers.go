package server

import (
	"net"
	"sync"
)

// connectionsPerPeer is how many connections one address may have open. A node needs one or two, and a command line one; many of them may be behind one
// address. It is what keeps one machine from taking all file descriptors of the process.
const connectionsPerPeer = 256

// perPeer returns a listener that closes connections of an address beyond so many.
func perPeer(listener net.Listener, most int) net.Listener {
	return &peerListener{Listener: listener, most: most, open: make(map[string]int)}
}

type peerListener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[string]int // connections by address
}

// Accept implements net.Listener.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := accepted.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(peer); err == nil {
			peer = host
		}
		if !l.enter(peer) {
			_ = accepted.Close()
			continue
		}
		return &peerConnection{Conn: accepted, leave: sync.OnceFunc(func() { l.leave(peer) })}, nil
	}
}

func (l *peerListener) enter(peer string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[peer] >= l.most {
		return false
	}
	l.open[peer]++
	return true
}

func (l *peerListener) leave(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[peer]--; l.open[peer] == 0 {
		delete(l.open, peer)
	}
}

// peerConnection is counted until it is closed.
type peerConnection struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *peerConnection) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
