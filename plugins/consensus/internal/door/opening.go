package door

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/proto/identity"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

const (
	// maxSocketPath is how long the path of a Unix socket may be, in bytes. The kernel's own error for a longer one does not say so.
	maxSocketPath = 107
	socketMode    = 0o660 // the instance is in the group of the directory
)

// opening is the socket of one instance and the connections that were accepted on it. It is the listener that the gRPC server sees.
type opening struct {
	log      hclog.Logger
	instance *consensusv1.AccessInstance
	user     uint64 // which making of the user this is open to
	listener *net.UnixListener
	served   chan struct{} // closed when the gRPC server has let go of the listener

	mu          sync.Mutex
	closed      bool
	connections map[*connection]struct{}
	refused     uint64
}

var _ net.Listener = (*opening)(nil)

// problemOf says what is wrong with an instance by itself; empty: nothing.
func problemOf(instance *consensusv1.AccessInstance) string {
	switch {
	case !identity.ValidConsensusUser(instance.ConsensusUser):
		return fmt.Sprintf("%q cannot be a ConsensusUser", instance.ConsensusUser)
	case !filepath.IsAbs(instance.Socket) || filepath.Clean(instance.Socket) != instance.Socket:
		return fmt.Sprintf("the socket %q is not a clean absolute path", instance.Socket)
	case len(instance.Socket) > maxSocketPath:
		return fmt.Sprintf("the path of the socket has %d bytes, more than %d: %s", len(instance.Socket), maxSocketPath, instance.Socket)
	}
	return ""
}

// open makes the socket of an instance and serves it.
func open(log hclog.Logger, server *grpc.Server, instance *consensusv1.AccessInstance, user uint64) (*opening, error) {
	if err := removeStale(instance.Socket); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: instance.Socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	if err := os.Chmod(instance.Socket, socketMode); err != nil {
		listener.Close()
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	o := &opening{
		log:         log.With("instance", instance.InstanceId),
		instance:    instance,
		user:        user,
		listener:    listener,
		served:      make(chan struct{}),
		connections: make(map[*connection]struct{}),
	}
	go func() {
		defer close(o.served)
		_ = server.Serve(o) // its error says that the listener was closed, by close or by the server's end
	}()
	return o, nil
}

// removeStale removes what an instance of this role that was killed has left behind.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return fmt.Errorf("the directory of the socket: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is in the way of the socket and is not one itself", path)
	}
	return os.Remove(path)
}

// close takes the socket away and cuts every connection. When it returns nothing of the instance is served any more.
func (o *opening) close() {
	o.mu.Lock()
	o.closed = true
	cut := make([]*connection, 0, len(o.connections))
	for c := range o.connections {
		cut = append(cut, c)
	}
	o.mu.Unlock()
	o.listener.Close() // also removes the socket's file
	for _, c := range cut {
		c.Close()
	}
	<-o.served
}

// Accept returns the next connection; who is at its other end is looked at in the handshake, so that nobody holds up the others.
func (o *opening) Accept() (net.Conn, error) {
	for {
		accepted, err := o.listener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		c := &connection{UnixConn: accepted, of: o}
		if err := o.admit(c); err != nil {
			accepted.Close()
			o.noteRefusal(err)
			continue
		}
		return c, nil
	}
}

// Close only closes the listener: the gRPC server calls it when it lets go.
func (o *opening) Close() error { return o.listener.Close() }

// Addr is the address of the socket.
func (o *opening) Addr() net.Addr { return o.listener.Addr() }

func (o *opening) admit(c *connection) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return net.ErrClosed
	case len(o.connections) >= maxConnections:
		return fmt.Errorf("it has %d connections already, which is the most: use one for many calls", maxConnections)
	}
	o.connections[c] = struct{}{}
	return nil
}

func (o *opening) forget(c *connection) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.connections, c)
}

// noteRefusal logs the first, second, fourth, eighth … refusal: whoever is refused may try again without end.
func (o *opening) noteRefusal(cause error) {
	o.mu.Lock()
	o.refused++
	count := o.refused
	o.mu.Unlock()
	if bits.OnesCount64(count) == 1 && !errors.Is(cause, net.ErrClosed) {
		o.log.Warn("refused a connection", "cause", cause, "refused_so_far", count)
	}
}

// connection is one that was accepted on an instance's socket.
type connection struct {
	*net.UnixConn
	of *opening

	mu     sync.Mutex
	closed bool
	// held are the answers that were not sent yet: gRPC forgets them with the connection, without giving them back.
	held map[*hold]struct{}
}

// RemoteAddr says by the way which connection it is.
func (c *connection) RemoteAddr() net.Addr { return address{of: c} }

// Close ends the connection and its place in the books.
func (c *connection) Close() error {
	c.of.forget(c)
	err := c.UnixConn.Close()
	c.mu.Lock()
	c.closed = true
	held := c.held
	c.held = nil
	c.mu.Unlock()
	for h := range held {
		h.release()
	}
	return err
}

// keep notes an answer that is to be sent, and reports whether the connection is still there.
func (c *connection) keep(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.held == nil {
		c.held = make(map[*hold]struct{})
	}
	c.held[h] = struct{}{}
	return true
}

func (c *connection) drop(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, h)
}

// giveUp lets go of the answers of a call.
func (c *connection) giveUp(call *turn) {
	c.mu.Lock()
	var lost []*hold
	for h := range c.held {
		if h.call == call {
			lost = append(lost, h)
		}
	}
	c.mu.Unlock()
	for _, h := range lost {
		h.release()
	}
}

// unread closes the connection of a client that does not read.
func (c *connection) unread() {
	c.of.noteRefusal(errors.New("it does not read its answers"))
	_ = c.Close()
}

// flooded closes the connection of a client that goes on calling while its calls are refused.
func (c *connection) flooded() {
	c.of.noteRefusal(fmt.Errorf("its user has %d calls under way, and does not stop", maxCalls+maxRefused))
	_ = c.Close()
}
