package cluster

import (
	"context"
	"crypto/x509"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what the client needs.
type Config struct {
	// Log takes the client's log; nil: none is written.
	Log hclog.Logger
	// Identity is who the node is: its key and SVID prove it to a curator, its CA and trust domain prove a curator to it.
	Identity *event.Value[*identity.Identity]
	// Capabilities says where the curator of this node is.
	Capabilities *event.Value[roles.Capabilities]
	// Status is what is reported to the cluster, as far as the cluster takes it: published values and endpoints that are too much are left out. What
	// others act upon (states, processes, endpoints) is reported at once, everything else every two seconds at most. Its field Reported does not
	// count as a change.
	Status *event.Value[*clusterv1.NodeStatus]
	// Now is the clock by which certificates are judged; nil: time.Now.
	Now func() time.Time
	// ClockSet changes whenever the machine's clock was set, so that what depends on it is looked at at once; nil: nobody tells, and it is looked at in time.
	ClockSet *event.Value[int]
	// Dial connects to the host:port of a curator; nil: plain TCP, without a proxy whatever the environment says, since the way to a
	// curator is the cluster's to decide.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// View is what the cluster last said to the node. It is published as a whole and nothing of it is changed afterwards.
type View struct {
	// Revision is the store's revision that the view reflects.
	Revision uint64
	// Node is what the cluster decided about this node. Never nil.
	Node *clusterv1.NodeRecord
	// Plugins are the catalog entries of the node's roles, sorted by name.
	Plugins []*clusterv1.PluginRecord
	// Directory is the cluster as its roles see it. Never nil.
	Directory *hostv1.Directory
	// Operators are whom the node's own API lets in, sorted by name.
	Operators []*clusterv1.Operator
	// Policy is what the owner demands of all nodes; nil: nothing was said.
	Policy *clusterv1.ClusterPolicy
}

// Client is the core's client of the cluster API.
type Client struct {
	config Config

	view        event.Value[*View]
	contact     event.Value[membership.Contact]
	credentials event.Value[identity.Credentials]
	curators    event.Value[[]string]

	// What the judge of contact looks at; each has one writer at a time.
	way      event.Value[way]      // written by Run
	watching event.Value[watching] // written by the session's watch worker
	beating  event.Value[beating]  // written by the session's heartbeat worker
	shown    event.Value[period]   // written by the handshakes of the session's connection

	// reporting is why the cluster refused the last report; empty: it did not. Written by the session's report worker.
	reporting event.Value[string]

	// Kept from one session to the next. Sessions follow one another, so each belongs to one goroutine at a time.
	last   *clusterv1.WatchResponse // the watch worker's: what view was made of
	pace   *pace                    // the report worker's: how much it has sent
	issued *x509.Certificate        // the renew worker's: the SVID that it last got
}

// New returns a client that does nothing before Run.
func New(config Config) *Client {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.ClockSet == nil {
		config.ClockSet = new(event.Value[int])
	}
	if config.Dial == nil {
		config.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	c := &Client{config: config, pace: newPace()}
	c.contact.Set(membership.Contact{Reason: "the cluster has not been called yet"})
	return c
}

// View is what the cluster last said to the node: not set before the first word, and kept while contact is lost.
func (c *Client) View() *event.Value[*View] { return &c.view }

// Contact is whether the cluster is in reach: OK as soon as a Watch stream has delivered and a heartbeat has succeeded, and lost only when
// no heartbeat has succeeded, or no Watch stream has been open, for as long as the cluster lets a heartbeat count. The reason says
// what is wrong, and since when; while there is contact, that the cluster refuses what the node reports.
func (c *Client) Contact() *event.Value[membership.Contact] { return &c.contact }

// Credentials is what the cluster last gave of certificates and keys. The SVID in it is one for the node key, checked.
func (c *Client) Credentials() *event.Value[identity.Credentials] { return &c.credentials }

// Curators is the host:port of every curator that the node knows: its own first, then those that the directory names, by node ID.
func (c *Client) Curators() *event.Value[[]string] { return &c.curators }

// Run keeps the node in contact with its cluster until the context ends, and returns nil when everything that it started has ended. It may
// be called again.
func (c *Client) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { c.judgeContact(ctx) })
	workers.Go(func() { c.listCurators(ctx) })

	identities, capabilities := c.config.Identity.Watch(), c.config.Capabilities.Watch()
	var node *identity.Identity
	var provided roles.Capabilities
	for ctx.Err() == nil {
		refresh(ctx, identities, &node)
		refresh(ctx, capabilities, &provided)
		to, missing := locate(node, provided)
		if missing != "" {
			c.setWay(way{missing: missing, since: time.Now()})
			select {
			case <-ctx.Done():
			case <-identities.Changed():
			case <-capabilities.Changed():
			}
			continue
		}
		c.setWay(way{to: to, since: time.Now()})
		c.runSession(ctx, to, func(ctx context.Context) {
			for next := to; next == to; {
				select {
				case <-ctx.Done():
					return
				case <-identities.Changed():
					refresh(ctx, identities, &node)
				case <-capabilities.Changed():
					refresh(ctx, capabilities, &provided)
				}
				next, _ = locate(node, provided)
			}
		})
	}
	return nil
}

// setWay publishes the way, with the time since when it is so.
func (c *Client) setWay(now way) {
	if before, ok := c.way.Get(); ok && before.to == now.to && before.missing == now.missing {
		return
	}
	c.way.Set(now)
}

// refresh puts the newest value that the watcher has not returned yet into value, and leaves it if there is none.
func refresh[T any](ctx context.Context, watcher *event.Watcher[T], value *T) {
	select {
	case <-watcher.Changed():
		if newest, err := watcher.Next(ctx); err == nil {
			*value = newest
		}
	default:
	}
}
