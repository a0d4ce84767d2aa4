package held

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/tap"
)

// Config is what a Counts goes by. Sizes are in bytes.
type Config struct {
	// Unfinished is how much may have come of requests of one client that are not complete, on all of its connections. Beyond it the client loses the connection on which more comes. AllUnfinished is how much there may be
	// of all clients, also of those of whom nobody knows yet who they are. Beyond it the connection that holds the most is closed.
	Unfinished, AllUnfinished int
	// Held is how much the calls of one client may hold, on all of its connections: their requests while they are under way, and their answers until those were read. What is beyond it is refused. AllUnread is how much of answers may
	// wait until all clients read them. Beyond it the connection on which the most waits is closed.
	Held, AllUnread int
	// Streams is how many streams a client may have open, on all of its connections: what each of them is told has to be looked at and encoded for each. Beyond it the next one is refused. 0: as many as it may have calls.
	Streams int
	// Call is what a call holds beside its request while it is under way, and Answer what is kept beside an answer until that was read.
	Call, Answer int
	// Refusal returns the error of a call whose client holds so many bytes, or has so many streams, and may not have more.
	Refusal func(client string, held, streams int) error
}

// Counts is what the clients of a server hold.
type Counts struct {
	config Config

	mu  sync.Mutex
	all map[*Connection]struct{}
	// By the client, and of all.
	unfinished    map[string]int
	allUnfinished int
	held          map[string]int
	streams       map[string]int
	allUnread     int
}

// New returns a Counts of nothing.
func New(config Config) *Counts {
	return &Counts{config: config, all: make(map[*Connection]struct{}), unfinished: make(map[string]int), held: make(map[string]int), streams: make(map[string]int)}
}

// Options are what a server of the Counts needs, beside [Counts.Begin] and the interceptors.
func (c *Counts) Options() []grpc.ServerOption {
	return append(Options(), grpc.StatsHandler(c))
}

// Connection is one that a server has accepted.
type Connection struct {
	net.Conn
	counts *Counts

	// What follows is guarded by the counts' mu. client is empty while nobody was let in. ended says that nothing is read any more, and that nothing is counted.
	client string
	ended  bool
	// requests is how many are not complete, and bytes what has come since the first of them began, but for those that are complete. What is around them is counted too.
	requests, bytes int
	// answers are those that were not read, and unread their bytes.
	answers map[*answer]struct{}
	unread  int
}

// Connection counts what a connection holds until it is closed. An empty client is set later, by Belongs.
func (c *Counts) Connection(accepted net.Conn, client string) *Connection {
	connection := &Connection{Conn: accepted, counts: c, client: client, answers: make(map[*answer]struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[connection] = struct{}{}
	return connection
}

// Read implements net.Conn. It fails when the connection holds too much.
func (c *Connection) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if !c.counts.came(c, n) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Close implements net.Conn.
func (c *Connection) Close() error {
	c.counts.mu.Lock()
	c.leave()
	c.counts.mu.Unlock()
	return c.Conn.Close()
}

// end closes a connection soon, from which nothing is read any more. mu is held.
func (c *Connection) end() {
	if c.leave() {
		go func() { _ = c.Conn.Close() }()
	}
}

// leave counts a connection no more, and reports whether it was counted. mu is held.
func (c *Connection) leave() bool {
	if c.ended {
		return false
	}
	c.holds(-c.bytes)
	for a := range c.answers {
		a.release()
	}
	c.ended = true
	delete(c.counts.all, c)
	return true
}

// Belongs says who the client of a connection is. The first who is named stays.
func (c *Connection) Belongs(client string) {
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	if c.client == "" && !c.ended {
		bytes := c.bytes
		c.holds(-bytes)
		c.client = client
		c.holds(bytes)
	}
}

// RemoteAddr implements net.Conn. It returns an Address.
func (c *Connection) RemoteAddr() net.Addr { return Address{c.Conn.RemoteAddr(), c} }

// Address is the address of the client of a Connection. By it a call is known to be on that connection. A server whose addresses have a type of their own embeds it there.
type Address struct {
	net.Addr
	connection *Connection
}

func (a Address) counted() *Connection { return a.connection }

// ConnectionOf returns the connection of a call; nil: it has none that is counted.
func ConnectionOf(ctx context.Context) *Connection {
	if from, ok := peer.FromContext(ctx); ok {
		if address, is := from.Addr.(interface{ counted() *Connection }); is {
			return address.counted()
		}
	}
	return nil
}

type requestKey struct{}

// request is one that is counted. Its fields are guarded by mu of the counts.
type request struct {
	connection *Connection
	// goesOn says that another one follows on it, which is part of the same call; ended that it is not counted any more.
	goesOn, ended bool
	// answered says that its status is on the way, behind its answers.
	answered bool
	// kept is its answers that are counted.
	kept map[*answer]struct{}
	// stop stops what waits for the end of the call, which is a goroutine then.
	stop func() bool
}

// Begin is a tap.ServerInHandle: it counts a request until it is complete, or its call has ended.
func (c *Counts) Begin(ctx context.Context, _ *tap.Info) (context.Context, error) {
	connection := ConnectionOf(ctx)
	if connection == nil {
		return ctx, nil
	}
	asked := &request{connection: connection}
	c.mu.Lock()
	defer c.mu.Unlock()
	connection.requests++
	ctx = context.WithValue(ctx, requestKey{}, asked)
	asked.stop = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		asked.goesOn = false
		asked.complete(0)
	})
	return ctx, nil
}

// complete ends the count of a request of so many bytes. mu is held.
func (r *request) complete(size int) {
	if r.ended {
		return
	}
	connection := r.connection
	if connection.requests--; connection.requests == 0 {
		size = connection.bytes
	}
	connection.holds(-min(size, connection.bytes))
	if r.goesOn {
		connection.requests++
	} else {
		r.ended = true
		r.stop()
	}
}

// holds has a connection hold so many bytes more of requests. mu is held.
func (c *Connection) holds(bytes int) {
	c.bytes += bytes
	c.counts.allUnfinished += bytes
	add(c.counts.unfinished, c.client, bytes)
}

// add counts so many more for a client; empty: nobody knows who that is.
func add(counted map[string]int, client string, bytes int) {
	if client == "" {
		return
	}
	if counted[client] += bytes; counted[client] == 0 {
		delete(counted, client)
	}
}

// came counts bytes that have come on a connection, and reports whether it is read on.
func (c *Counts) came(connection *Connection, bytes int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if connection.requests == 0 || connection.ended {
		return !connection.ended
	}
	connection.holds(bytes)
	if c.unfinished[connection.client] > c.config.Unfinished {
		connection.end()
	}
	if c.allUnfinished > c.config.AllUnfinished {
		most := connection
		for other := range c.all {
			if other.bytes > most.bytes {
				most = other
			}
		}
		most.end()
	}
	return !connection.ended
}

// TagRPC implements stats.Handler.
func (c *Counts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler: it hears of requests that are complete, of calls that have more than one, and of their end.
func (c *Counts) HandleRPC(ctx context.Context, what stats.RPCStats) {
	switch what.(type) {
	case *stats.Begin, *stats.InPayload, *stats.OutTrailer, *stats.End:
	default:
		return // of what is sent there is much
	}
	asked, is := ctx.Value(requestKey{}).(*request)
	if !is {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch what := what.(type) {
	case *stats.Begin:
		asked.goesOn = what.IsClientStream
	case *stats.InPayload:
		asked.complete(what.WireLength)
	case *stats.OutTrailer:
		asked.answered = true
	case *stats.End:
		asked.callEnded()
	}
}

// TagConn implements stats.Handler.
func (c *Counts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (c *Counts) HandleConn(context.Context, stats.ConnStats) {}
