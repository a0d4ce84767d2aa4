package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc"
)

// Client is etcd's client for a part of the store. Its KV, Watcher and Lease hide the prefix of the keys, so it works with everything that takes a
// *clientv3.Client, such as the packages concurrency and leasing. Cluster, Maintenance and Auth exist, but etcd refuses most of their calls to a
// ConsensusUser.
type Client struct {
	*clientv3.Client

	raw    *clientv3.Client
	socket string
	user   string
	prefix string
	// own closes what belongs to this client only.
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

// within makes a client for the keys below a prefix, on raw's connection.
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
			// Close of the embedded client closes its watcher and lease and then returns its context's error, which is expected here.
			err := client.Close()
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			return errors.Join(err, closeConnection())
		},
	}
}

// User is the ConsensusUser that the store knows the role by.
func (c *Client) User() string { return c.user }

// Socket is the Unix socket on which the store serves only this instance, for the role's own child processes that use etcd themselves. It stays the
// same while the instance lives.
func (c *Client) Socket() string { return c.socket }

// Prefix is the prefix of the client's keys in the store. It ends with a slash.
func (c *Client) Prefix() string { return c.prefix }

// Connection is the connection to the store, for a service that the store offers beside etcd's. It ends with the client.
func (c *Client) Connection() grpc.ClientConnInterface { return c.raw.ActiveConnection() }

// LeaseClient returns etcd's own lease API on the client's connection. It is for a role that renews very many leases: KeepAliveOnce of Client makes a
// stream for each, and KeepAlive a goroutine. Leases have no prefix.
func (c *Client) LeaseClient() pb.LeaseClient { return clientv3.RetryLeaseClient(c.raw) }

// Sub returns a client for the keys below name and a slash. It has its own watches and leases, shares the connection, and is closed with c at the
// latest; closing it does not close c. It panics if name is empty or begins with a slash, because that is a programming error.
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

// Close ends the client's watches, stops renewing its leases (it does not revoke them), closes its sub-clients, and closes the connection of a client
// of Dial. It may be called more than once.
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
