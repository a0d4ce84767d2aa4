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

// peerConn is a connection whose peer is known.
type peerConn struct {
	*tls.Conn
	peer  Peer
	chain []*x509.Certificate // the peer's
	usage x509.ExtKeyUsage    // what the peer proved itself for
	ends  time.Time           // when the first of the two SVIDs expires
	// spoken is by what the peer's chain was last verified.
	spoken atomic.Pointer[trust]
	held   *connections
	// operator is who has proved itself in place of an instance; nil: an instance has.
	operator *operatorProof
}

// name is who the peer is, for people.
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

// cut ends the connection without a word to the peer, for whose sake nobody is to wait.
func (c *peerConn) cut() {
	// Closing says nothing that anybody could act on: the connection is to end.
	_ = c.Conn.NetConn().Close()
}

// connections are those of a host that are open. One whose peer's node has left the cluster or has its role no more, or one of whose SVIDs has expired, is cut; so is one whose
// operator the cluster has no more.
type connections struct {
	host *Host
	once sync.Once
	wake chan struct{} // has room for one

	mu   sync.Mutex
	open map[*peerConn]struct{}
	next time.Time // when they are looked at again, whatever happens
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
	errNoNode     = errors.New("the cluster's directory does not have that node")
	errNoRole     = errors.New("the cluster's directory does not have that role on that node")
)

// hold takes a connection in, if it may be open now. From then on it is watched.
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
	// After it was taken in: what changes from now on, run sees.
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

// all returns the connections that are open.
func (c *connections) all() []*peerConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.open))
}

// permitted says why a connection may not be open; nil if it may.
func (c *peerConn) permitted(directory *hostv1.Directory, operators *hostv1.Operators, trust *trust, now time.Time) error {
	err := known(directory, c.peer)
	if c.operator != nil {
		err = c.operator.present(operators)
	}
	if err != nil {
		return err
	}
	if !now.Before(c.ends) {
		return fmt.Errorf("an SVID by which the connection was made expired at %s", c.ends.UTC().Format(time.RFC3339))
	}
	if c.spoken.Load() == trust {
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
	c.spoken.Store(trust)
	return nil
}

// run cuts connections that may not be open any more, and all of them at the end.
func (c *connections) run() {
	directories, trusts, operators := c.host.directory.Watch(), c.host.prover.trust.Watch(), c.host.operators.Watch()
	for c.host.ctx.Err() == nil {
		// Before the connections are looked at: what changes meanwhile is seen in the next round.
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

// look cuts the connections that may not be open, and says when to look again.
func (c *connections) look(directory *hostv1.Directory, operators *hostv1.Operators, trust *trust) time.Time {
	now := time.Now()
	next := now.Add(lookAgain)
	for _, conn := range c.all() {
		if err := conn.permitted(directory, operators, trust, now); err != nil {
			c.host.log.Info("a connection was closed", "peer", conn.name(), "reason", err)
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

// known says why the directory does not have an instance; nil: it does. The role counts that is assigned, whether the node has told of it yet or not.
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

// nodeOf finds a node in the directory; nil: there is none of that ID.
func nodeOf(directory *hostv1.Directory, id string) *hostv1.DirectoryNode {
	for _, node := range directory.GetNodes() {
		if node.GetNodeId() == id {
			return node
		}
	}
	return nil
}
