package role

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reeveproject/reeve/proto/identity"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// peerConn is a connection with an authenticated peer.
type peerConn struct {
	*tls.Conn
	peer  Peer
	chain []*x509.Certificate // the peer's
	usage x509.ExtKeyUsage    // the usage that the peer's certificate was verified for
	ends  time.Time           // when the first of the two certificates expires
	// verifiedBy is the trust that the peer's chain was last verified with.
	verifiedBy atomic.Pointer[trust]
	held       *connections
	// operator is set if the peer is an operator instead of an instance.
	operator *operatorProof
}

// name names the peer, for people.
func (c *peerConn) name() string {
	if c.operator != nil {
		return c.operator.String()
	}
	return c.peer.String()
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	c.held.remove(c)
	return c.Conn.Close()
}

// cut closes the connection without a TLS alert, which would wait for the peer.
func (c *peerConn) cut() {
	// The connection ends either way.
	_ = c.Conn.NetConn().Close()
}

// connections are a host's open connections. It cuts one when an SVID has expired, when the peer's node has left the cluster or lost the role, or
// when the peer's operator was removed.
type connections struct {
	host *Host
	once sync.Once
	wake chan struct{} // buffered, one element

	mu   sync.Mutex
	open map[*peerConn]struct{}
	next time.Time // when run looks at them next at the latest
	over bool
}

func (c *connections) begin(host *Host) {
	c.once.Do(func() {
		c.host, c.wake, c.open = host, make(chan struct{}, 1), make(map[*peerConn]struct{})
		host.Directory()
		host.prover.begin(host)
		if !host.background(c.run) {
			c.over = true
		}
	})
}

var (
	errHostClosed = errors.New("the role has ended")
	errNoNode     = errors.New("that node is not in the cluster's directory")
	errNoRole     = errors.New("that role is not assigned to that node in the cluster's directory")
)

// hold adds a connection if it is permitted now. From then on run watches it.
func (c *connections) hold(conn *peerConn) error {
	conn.held = c
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return errHostClosed
	}
	c.open[conn] = struct{}{}
	sooner := conn.ends.Before(c.next)
	c.mu.Unlock()
	if sooner {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	// After adding it, so that run sees every later change.
	directory, _ := c.host.directory.Get()
	trust, _ := c.host.prover.trust.Get()
	operators, _ := c.host.operators.Get()
	if err := conn.permitted(directory, operators, trust, time.Now()); err != nil {
		c.remove(conn)
		return err
	}
	return nil
}

func (c *connections) remove(conn *peerConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// all returns the open connections.
func (c *connections) all() []*peerConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.open))
}

// permitted returns why a connection must be closed; nil if it may stay open.
func (c *peerConn) permitted(directory *hostv1.Directory, operators *hostv1.Operators, trust *trust, now time.Time) error {
	err := known(directory, c.peer)
	if c.operator != nil {
		err = c.operator.present(operators)
	}
	if err != nil {
		return err
	}
	if !now.Before(c.ends) {
		return fmt.Errorf("an SVID of the connection expired at %s", c.ends.UTC().Format(time.RFC3339))
	}
	if c.verifiedBy.Load() == trust {
		return nil
	}
	if c.operator != nil {
		_, err = identity.VerifySession(c.chain, trust.certificates, trust.domain, now)
	} else {
		_, err = trust.verify(c.chain, c.usage, now)
	}
	if err != nil {
		return err
	}
	c.verifiedBy.Store(trust)
	return nil
}

// run cuts connections that are no longer permitted, and all of them at the end.
func (c *connections) run() {
	directories, trusts, operators := c.host.directory.Watch(), c.host.prover.trust.Watch(), c.host.operators.Watch()
	for c.host.ctx.Err() == nil {
		// Read these before looking at the connections, so that the next round sees changes made meanwhile.
		directory, _ := directories.Latest()
		trust, _ := trusts.Latest()
		known, _ := operators.Latest()
		timer := time.NewTimer(time.Until(c.look(directory, known, trust)))
		select {
		case <-c.host.ctx.Done():
		case <-directories.Changed():
		case <-trusts.Changed():
		case <-operators.Changed():
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	for _, conn := range c.all() {
		c.remove(conn)
		conn.cut()
	}
}

// look cuts connections that are not permitted, and returns when to look again.
func (c *connections) look(directory *hostv1.Directory, operators *hostv1.Operators, trust *trust) time.Time {
	now := time.Now()
	next := now.Add(lookAgain)
	for _, conn := range c.all() {
		if err := conn.permitted(directory, operators, trust, now); err != nil {
			c.host.log.Info("closed a connection", "peer", conn.name(), "reason", err)
			c.remove(conn)
			conn.cut()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if conn.ends.Before(next) {
			next = conn.ends
		}
	}
	c.next = next
	return next
}

// known returns why an instance is not in the directory; nil if it is. Assigned roles count, whether or not the node has reported them.
func known(directory *hostv1.Directory, peer Peer) error {
	node := nodeOf(directory, peer.NodeID)
	switch {
	case node == nil:
		return fmt.Errorf("%w: %s", errNoNode, peer.NodeID)
	case node.GetAssigned() != nil && !slices.Contains(node.GetAssigned().GetRoles(), peer.Role):
		return fmt.Errorf("%w: %s", errNoRole, peer)
	}
	return nil
}

// nodeOf returns a node of the directory; nil if there is none with that ID.
func nodeOf(directory *hostv1.Directory, id string) *hostv1.DirectoryNode {
	for _, node := range directory.GetNodes() {
		if node.GetNodeId() == id {
			return node
		}
	}
	return nil
}
