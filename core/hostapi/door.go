package hostapi

import (
	"net"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/plugin"
)

// door is a listener that admits a limited number of connections of one instance. It keeps track of them, so that shut can end them in any state.
type door struct {
	*net.UnixListener
	remit *plugin.Remit
	log   hclog.Logger
	left  func(*guest) // is told of connections that have ended

	mu      sync.Mutex
	inside  map[*guest]struct{}
	closing bool
}

func newDoor(listener *net.UnixListener, remit *plugin.Remit, log hclog.Logger, left func(*guest)) *door {
	return &door{UnixListener: listener, remit: remit, log: log, left: left, inside: make(map[*guest]struct{})}
}

// Accept implements net.Listener. It closes refused connections and goes on to the next.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if admitted := d.admit(conn); admitted != nil {
			return admitted, nil
		}
		// Nothing was sent on it yet, so an error of Close does not matter.
		_ = conn.Close()
	}
}

func (d *door) admit(conn *net.UnixConn) *guest {
	if err := checkPeer(conn, d.remit); err != nil {
		d.log.Warn("Refused a connection to the host socket: the peer is not the instance", "error", err)
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return nil
	}
	if len(d.inside) >= maxConnections {
		d.log.Debug("Refused a connection to the host socket: the instance has reached its limit", "connections", maxConnections)
		return nil
	}
	admitted := &guest{UnixConn: conn, door: d}
	d.inside[admitted] = struct{}{}
	return admitted
}

// shut closes the listener and every admitted connection.
func (d *door) shut() {
	d.mu.Lock()
	d.closing = true
	inside := d.inside
	d.inside = make(map[*guest]struct{})
	d.mu.Unlock()
	_ = d.Close()
	for conn := range inside {
		_ = conn.UnixConn.Close()
	}
}

// guest is an admitted connection. Close frees its place.
type guest struct {
	*net.UnixConn
	door *door
}

func (g *guest) Close() error {
	g.door.mu.Lock()
	delete(g.door.inside, g)
	g.door.mu.Unlock()
	defer g.door.left(g)
	return g.UnixConn.Close()
}

// address is the address of a call's client, and the connection by which the call came.
type address struct {
	net.Addr
	guest *guest
}

// RemoteAddr implements net.Conn.
func (g *guest) RemoteAddr() net.Addr {
	remote := g.UnixConn.RemoteAddr()
	if remote == nil {
		remote = g.LocalAddr()
	}
	return address{remote, g}
}
