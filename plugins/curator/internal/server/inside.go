package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// inside is a listener within the process, for the curator's own check of whether it answers: its sandbox lets it listen, and connect to nothing.
type inside struct {
	accept chan net.Conn
	closed chan struct{}
	close  sync.Once
	dialed atomic.Uint64
}

func newInside() *inside { return &inside{accept: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements net.Listener.
func (i *inside) Accept() (net.Conn, error) {
	select {
	case connection := <-i.accept:
		return connection, nil
	case <-i.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (i *inside) Close() error {
	i.close.Do(func() { close(i.closed) })
	return nil
}

// Addr implements net.Listener.
func (i *inside) Addr() net.Addr { return insideAddress("inside") }

// dial connects to whoever accepts.
func (i *inside) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	// Each end has a name of its own, by which connections are told apart.
	named := &insideConnection{Conn: theirs, name: insideAddress(fmt.Sprintf("inside-%d", i.dialed.Add(1)))}
	select {
	case i.accept <- named:
		return ours, nil
	case <-i.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type insideConnection struct {
	net.Conn
	name insideAddress
}

// RemoteAddr implements net.Conn.
func (c *insideConnection) RemoteAddr() net.Addr { return c.name }

type insideAddress string

// Network implements net.Addr.
func (insideAddress) Network() string { return "inside" }

// String implements net.Addr.
func (a insideAddress) String() string { return string(a) }
