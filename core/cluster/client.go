package cluster

import (
	"context"
	"crypto/x509"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what the client needs. What is not said to be optional is required.
type Config struct {
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
	// ClockSet changes whenever the machine's clock was set, so that what depends on it is looked at at once.
	ClockSet *event.Value[int]
	// Incarnation is this start of the core, which every call carries. While it is not set nobody is called.
	Incarnation *event.Value[*clusterv1.Incarnation]
	// Kept is the file on the volume in which the addresses of the cluster's curators are kept from one start to the next; empty: they are not.
	Kept string
	// Nodes is the file on the volume in which other nodes are kept from one start to the next, which are asked where a curator is when none of the known ones answers; empty: they are not kept.
	Nodes string
	// Generation is the file on the volume in which the generation of the store is kept that the node follows; empty: it is not.
	Generation string
	// StoreChanged is told that the node follows another store of its cluster, or refuses one; nil: nobody is.
	StoreChanged func(StoreChange)
	// Known returns the addresses of curators (host:port) that the node knows otherwise, such as those that it was given when it was taken in. They are
	// asked when nobody else answers.
	Known func() []string
	// Peers are the machines, by address or DNS name, on which other nodes may be as the operator says: a curator is asked there, at each port at which one of the known ones was, when
	// nobody else answers. Nil: none.
	Peers *event.Value[[]string]
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
	local       event.Value[string]
	removed     event.Value[*enrol.RemovedError]
	refused     event.Value[*Refused]

	// kept are the curators of other nodes, as they are in the file. Written by the worker that lists them.
	kept event.Value[[]string]
	// nodes are the other nodes that can be asked, as they are in the file, and asked what they answered. Written by the workers of others.go.
	nodes event.Value[[]keptNode]
	asked event.Value[[]answer]
	// current is the session that there is; nil: none. Written by Run.
	current event.Value[*session]

	// What the judge of contact looks at; each has one writer at a time.
	way      event.Value[way]      // written by Run
	watching event.Value[watching] // written by the session's watch worker
	beating  event.Value[beating]  // written by the session's heartbeat worker
	shown    event.Value[period]   // written by the handshakes of the session's connection

	// reporting is why the cluster refused the last report; empty: it did not. Written by the session's report worker.
	reporting event.Value[string]

	// Kept from one session to the next. Sessions follow one another, so each belongs to one goroutine at a time.
	last   *clusterv1.WatchResponse // the watch worker's: what view was made of
	behind time.Time                // the watch worker's: since when curators have an older record of the node than it has; zero: they do not
	// refusals are why the node refuses the stores of curators, by the key of each. The watch worker's, and between sessions Run's.
	refusals map[string]error
	// generation is what the node follows; nil: nothing yet. Written by the watch worker. told is what was told of it last.
	generation atomic.Pointer[Generation]
	told       atomic.Pointer[StoreChange]
	// lost is since when there is no contact; nil: there is. Written by the judge of contact.
	lost    atomic.Pointer[time.Time]
	had     atomic.Bool                      // there was contact since the node started
	pace    *pace                            // the report worker's: how much it has sent
	wire    atomic.Pointer[net.Conn]         // what the session's connection goes over
	offered atomic.Pointer[x509.Certificate] // the SVID of the last handshake; nil: the node proved itself by its key
	denied  atomic.Pointer[x509.Certificate] // the SVID that a curator refused last; nil: none
	issued  *x509.Certificate                // the renew worker's: the SVID that it last got
	resign  time.Time                        // the renew worker's: when it gets another one since the CA that signs has changed; zero: that has not
}

// New returns a client that does nothing before Run.
func New(config Config) *Client {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Dial == nil {
		config.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	if config.Peers == nil {
		config.Peers = event.New([]string(nil))
	}
	c := &Client{config: config, pace: newPace(), refusals: make(map[string]error)}
	kept, err := readKept(config.Kept)
	if err != nil {
		config.Log.Warn("the curators of earlier are not known", "error", err)
	}
	c.kept.Set(kept)
	nodes, err := readNodes(config.Nodes)
	if err != nil {
		config.Log.Warn("the nodes of earlier are not known", "error", err)
	}
	c.nodes.Set(nodes)
	generation, err := readGeneration(config.Generation)
	if err != nil {
		config.Log.Warn("the node does not know which store it follows", "error", err)
	}
	c.generation.Store(generation)
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

// Curators is the host:port of every curator that the node knows: its own first, then those that the directory names, by node ID; before there is a directory,
// those from earlier.
func (c *Client) Curators() *event.Value[[]string] { return &c.curators }

// LocalCurator is the host:port at which this node's own curator is reached from this machine only; empty: it says none of that kind.
func (c *Client) LocalCurator() *event.Value[string] { return &c.local }

// Removed is set once the cluster has said that it has removed this node. It is not set otherwise, and never taken back.
func (c *Client) Removed() *event.Value[*enrol.RemovedError] { return &c.removed }

// Refused is set while the cluster takes this node for another one than the one that it knows. Not set or nil: it does not.
func (c *Client) Refused() *event.Value[*Refused] { return &c.refused }

// Run keeps the node in contact with its cluster until the context ends, and returns nil when everything that it started has ended. It may
// be called again.
func (c *Client) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	began := time.Now()
	c.lost.Store(&began)
	workers.Go(func() { c.judgeContact(ctx) })
	workers.Go(func() { c.listCurators(ctx) })
	workers.Go(func() { c.keepNodes(ctx) })
	workers.Go(func() { c.askNodes(ctx) })

	knowledge := c.watchKnowledge()
	choice := newChoice()
	for ctx.Err() == nil {
		list, missing := candidates(knowledge.now())
		if missing != "" {
			c.setWay(way{missing: missing, since: time.Now()})
			knowledge.wait(ctx, nil, time.Time{})
			continue
		}
		to, pause := choice.next(list, time.Now())
		failed := ""
		if len(list) > 1 {
			failed = choice.failed()
		}
		c.setWay(way{to: to, failed: failed, since: time.Now()})
		if pause > 0 && !sleep(ctx, pause) {
			return nil
		}
		c.runSession(ctx, to, func(ctx context.Context, s *session) { c.attend(ctx, s, knowledge, choice) })
	}
	return nil
}

// attend stays with a session until another one is to follow.
func (c *Client) attend(ctx context.Context, s *session, knowledge *knowledge, choice *choice) {
	began := time.Now()
	conditions := s.condition.Watch()
	var how condition
	worked := func() time.Duration {
		if how.healthy.IsZero() {
			return 0
		}
		return time.Since(how.healthy)
	}
	defer func() { choice.ended(s.to, worked()) }()
	for told := false; ctx.Err() == nil; {
		how, _ = conditions.Latest()
		list, missing := candidates(knowledge.now())
		if missing != "" {
			return
		}
		if how.well() {
			choice.worked(s.to)
			if !told {
				told = true
				choice.well(s.to)
				c.setWay(way{to: s.to, since: time.Now()})
			}
		}
		now := time.Now()
		best := list[0]
		var look time.Time
		switch {
		case !slices.ContainsFunc(list, s.to.same) && (s.to.own || !slices.ContainsFunc(list, s.to.sameIdentity) || !how.well()):
			// The curator of this node is another one or gone, or the node is somebody else; one of another node that works is kept whatever the directory says.
			return
		case best.own && best.ready && !s.to.own:
			if look = choice.rests[best.key()].until; !now.Before(look) {
				return
			}
		}
		others := slices.ContainsFunc(list, func(t target) bool { return !t.same(s.to) })
		s.others.Store(others)
		if others {
			leave, problem, again := how.givenUp(began, now, choice.patience)
			if leave {
				level := hclog.Info
				if choice.rests[s.to.key()].problem == problem {
					level = hclog.Debug // the same of the same at every try would hide everything else
				}
				c.config.Log.Log(level, "going to another curator", "from", s.to.who(), "error", problem)
				// The refusal may be of an earlier session, and the curator dead by now. To ask its own curator the node leaves one that works, so that one rests longer.
				why := s.checkStore()
				refused := why != nil && problem == explain(why) && !s.to.own
				choice.leave(s.to, list, problem, refused, worked(), now)
				return
			}
			if look.IsZero() || !again.IsZero() && again.Before(look) {
				look = again
			}
		}
		knowledge.wait(ctx, conditions.Changed(), look)
	}
}

// knowledge follows what the node knows of curators.
type knowledge struct {
	client       *Client
	identities   *event.Watcher[*identity.Identity]
	capabilities *event.Watcher[roles.Capabilities]
	views        *event.Watcher[*View]
	kept         *event.Watcher[[]string]
	asked        *event.Watcher[[]answer]
	incarnations *event.Watcher[*clusterv1.Incarnation]
	peers        *event.Watcher[[]string]
	known        known
}

func (c *Client) watchKnowledge() *knowledge {
	return &knowledge{
		client: c, identities: c.config.Identity.Watch(), capabilities: c.config.Capabilities.Watch(), views: c.view.Watch(), kept: c.kept.Watch(), asked: c.asked.Watch(),
		incarnations: c.config.Incarnation.Watch(), peers: c.config.Peers.Watch(),
	}
}

func (k *knowledge) now() known {
	k.known.node, _ = k.identities.Latest()
	k.known.provided, _ = k.capabilities.Latest()
	k.known.view, _ = k.views.Latest()
	_, _ = k.kept.Latest()
	_, _ = k.asked.Latest()
	_, _ = k.peers.Latest()
	k.known.kept = k.client.known()
	incarnation, _ := k.incarnations.Latest()
	k.known.nameless = incarnation == nil
	return k.known
}

// wait waits until something of the knowledge changes, or another channel is closed, or a time has come (zero: it never does).
func (k *knowledge) wait(ctx context.Context, other <-chan struct{}, until time.Time) {
	var come <-chan time.Time
	if !until.IsZero() {
		come = time.After(time.Until(until))
	}
	select {
	case <-ctx.Done():
	case <-k.identities.Changed():
	case <-k.capabilities.Changed():
	case <-k.views.Changed():
	case <-k.kept.Changed():
	case <-k.asked.Changed():
	case <-k.peers.Changed():
	case <-k.incarnations.Changed():
	case <-other:
	case <-come:
	}
}

// setWay publishes the way, with the time since when it is so.
func (c *Client) setWay(now way) {
	if before, ok := c.way.Get(); ok && before.to == now.to && before.missing == now.missing && before.failed == now.failed {
		return
	}
	c.way.Set(now)
}
