package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// Client is etcd's client within a part of the store. Its KV, Watcher and Lease see the keys without their prefix, so that it can be given to
// everything that takes a *clientv3.Client, such as the packages concurrency and leasing. Cluster, Maintenance and Auth are there, but
// etcd refuses a ConsensusUser most of them.
type Client struct {
	*clientv3.Client

	raw    *clientv3.Client
	socket string
	user   string
	prefix string
	// own closes what is this client's own.
	own  func() error
	once sync.Once
	err  error

	mu     sync.Mutex
	closed bool
	subs   map[*Client]struct{}
	parent *Client
}

func newClient(raw *clientv3.Client, socket, user, prefix string) *Client {
	return within(raw, socket, user, prefix, raw.Close)
}

// within makes a client for the keys below a prefix, on the connection of raw.
func within(raw *clientv3.Client, socket, user, prefix string, closeConnection func() error) *Client {
	lease := clientv3.NewLease(raw)
	client := clientv3.NewCtxClient(raw.Ctx(), clientv3.WithZapLogger(raw.GetLogger()))
	client.KV = namespace.NewKV(raw.KV, prefix)
	client.Watcher = newWatcher(raw, prefix)
	client.Lease = namespace.NewLease(lease, prefix)
	client.Cluster, client.Maintenance, client.Auth = raw.Cluster, raw.Maintenance, raw.Auth
	return &Client{
		Client: client, raw: raw, socket: socket, user: user, prefix: prefix, subs: make(map[*Client]struct{}),
		own: func() error {
			// The embedded client closes its watcher and lease, and then tells that its context has ended, which is no error here.
			err := client.Close()
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return errors.Join(err, closeConnection())
		},
	}
}

// User is the ConsensusUser that the store takes the role for.
func (c *Client) User() string { return c.user }

// Socket is the Unix socket at which the store serves this instance, and nobody else: for programs of the role's own that speak to etcd by themselves, in processes that it has started. It
// stays the same while the instance lives.
func (c *Client) Socket() string { return c.socket }

// Prefix is where the client's keys are in the store. It ends with a slash.
func (c *Client) Prefix() string { return c.prefix }

// LeaseClient returns etcd's own API of leases, on the client's connection: for a role that renews so many that a stream for each, as KeepAliveOnce of Client makes it, or
// a goroutine for each, as KeepAlive does, is too much. Leases have no prefix.
func (c *Client) LeaseClient() pb.LeaseClient { return clientv3.RetryLeaseClient(c.raw) }

// Sub returns a client for the keys below name and a slash. It has watches and leases of its own, shares the connection, and is closed
// with c at the latest; closing it leaves c as it is. It panics if name is empty or begins with a slash, which would be a mistake
// in the program.
func (c *Client) Sub(name string) *Client {
	if name == "" || name[0] == '/' {
		panic(fmt.Sprintf("consensus: Sub(%q): want a name that does not begin with a slash", name))
	}
	sub := within(c.raw, c.socket, c.user, c.prefix+name+"/", func() error { return nil })
	sub.parent = c
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.subs[sub] = struct{}{}
	}
	c.mu.Unlock()
	if closed {
		_ = sub.Close()
	}
	return sub
}

// Close ends the client's watches, the keeping alive of its leases (the leases run out or are revoked by the role, they are not revoked
// here), its sub-clients, and with a client of Dial the connection. It may be called more than once.
func (c *Client) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		subs := c.subs
		c.subs = nil
		c.mu.Unlock()
		for sub := range subs {
			c.err = errors.Join(c.err, sub.Close())
		}
		if c.parent != nil {
			c.parent.mu.Lock()
			delete(c.parent.subs, c)
			c.parent.mu.Unlock()
		}
		c.err = errors.Join(c.err, c.own())
	})
	return c.err
}
