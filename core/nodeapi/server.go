package nodeapi

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/filewatch"
	"github.com/reeveproject/reeve/core/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/held"
	"github.com/reeveproject/reeve/sdk/peercred"
)

// Tests lengthen these, so that nothing ends because of them on a busy machine.
var (
	// stopGrace is how long calls may go on when the core stops. Watches end at once; what may take longer is an import, which can be
	// begun again.
	stopGrace = 2 * time.Second
	// answerGrace is how long the answers that come last may be on their way.
	answerGrace = 2 * time.Second
	// handshakeTimeout is how long a connection may take to prove who it is.
	handshakeTimeout = 10 * time.Second
)

const (
	// maxStreams bounds the calls on one connection.
	maxStreams = 64
	// maxHeaders bounds the metadata of a call, of which the API uses none.
	maxHeaders = 16 << 10
	// maxRequest is a message's data and the few bytes around it.
	maxRequest = maxPart + 64
	// streamWindow is how much of an import may be on its way before it is written, and connectionWindow how much of all calls on a connection. gRPC would find larger ones by itself, and hold 16 MiB of one import.
	streamWindow     = 1 << 20
	connectionWindow = 2 * streamWindow
	// minPing is how often a client may ask whether the connection lives; pingAfter is when the server asks by itself, and pingTimeout
	// how long it waits for an answer before it takes the client for gone.
	minPing     = 5 * time.Second
	pingAfter   = 30 * time.Second
	pingTimeout = 10 * time.Second
)

// bounds is what clients over TCP may have the core hold, each on all of its connections: of requests, seven imports at once, and of answers, two of the largest.
var bounds = held.Config{
	Unfinished: 16 * maxRequest, AllUnfinished: 128 << 20, Held: 32 << 20, AllUnread: 128 << 20, Call: 8 << 10, Answer: 4 << 10,
	Streams: 256,
	Refusal: func(_ string, held, streams int) error {
		return status.Errorf(codes.ResourceExhausted, "nodeapi: this client holds %d MiB in the core with calls that are under way and with answers that were not read, and may hold 32 MiB; and has %d streams, and may have 256: "+
			"read the answers of former calls, or close their connections", held>>20, streams)
	},
}

// Config is what the server needs.
type Config struct {
	// Log takes the server's log; nil: none is written.
	Log hclog.Logger
	// Socket is the local socket, which one server serves at a time. It is not the server's: it stays when the server ends.
	Socket *Socket
	// Listen is host:port for TCP; port 0: a free one; empty: the API is served on the socket only.
	Listen string
	// AwaitFree has the server be made although another program listens there: it is tried again every second, and Problem says so. An address that the machine does not have
	// is always awaited so.
	AwaitFree bool
	// Status is what GetStatus and WatchStatus answer.
	Status *event.Value[*nodev1.Status]
	// Identity has the SVID with which the server proves itself over TCP, and the owner's key.
	Identity *event.Value[*identity.Identity]
	// Import keeps an executable and asks it for its manifest. It must not read after it has returned.
	Import func(ctx context.Context, executable io.Reader) (digest string, manifest *rolev1.Manifest, err error)
	// LogPath is the file that has what the instances of a role write; false: the node has no such role. What they wrote before is in the file whose name
	// has ".1" at its end, too.
	LogPath func(role string) (path string, ok bool)

	// Operators is who the cluster's operators are, as the cluster last said. While it holds nothing, and if it is nil, only the owner key and the
	// local socket are let in.
	Operators *event.Value[[]*clusterv1.Operator]
	// Directory has the other nodes of the cluster, which may ask where its curators are; nil: none may.
	Directory *event.Value[*hostv1.Directory]
	// Now is the time by which sessions end; nil: time.Now.
	Now func() time.Time

	// What follows may be nil while the volume is not open: Locked then answers.

	// Restart stops the instance of a role and has it started again; *roles.NotDesiredError if the node should not run the role.
	Restart func(ctx context.Context, role string, dryRun bool) (instanceID string, err error)
	// Debug has the process that listens on a socket be the instance of a role, and returns which that is and the ID of the instance that gives way. Its error may be a status.
	Debug func(ctx context.Context, role, socket string, dryRun bool) (pid int, instanceID string, err error)
	// Role tells what a role runs as; *roles.NotDesiredError if the node should not run the role.
	Role func(ctx context.Context, role string) (*nodev1.GetRoleResponse, error)
	// Events is what WatchEvents reads.
	Events *events.Journal
	// Recorder takes the events of audited calls; nil: Events does, and if that is nil, too, they are not recorded.
	Recorder events.Recorder
	// Metrics returns the node's metrics in the text format of Prometheus.
	Metrics func(ctx context.Context) (text []byte, err error)
	// RecoverStore has the store give back the room that it does not need, and returns its size before and after, in bytes. Its error may be a status,
	// such as Unavailable where no role provides the store; so may that of ReplaceOwner.
	RecoverStore func(ctx context.Context, dryRun bool) (before, after int64, err error)
	// Majority brings the store back.
	Majority Majority
	// ReplaceOwner makes a key the cluster's owner key, and returns the machines that do not become members any more. The requester is who asked for it, such as "user 0".
	ReplaceOwner func(ctx context.Context, key ed25519.PublicKey, requester string, dryRun bool) (waiting []string, err error)

	// SetPeers tells the node on which machines other nodes may be, and returns all that it tries now; *network.PeerError if one cannot be such a machine.
	SetPeers func(peers []string, dryRun bool) (all []string, err error)

	// Storage handles the volume and its keys.
	Storage Storage

	// Locked, if it is not nil, says that the volume is not open: of the RPCs only those are answered that are for such a node, and all others with the error that
	// it returns, which may be a status. Who may not call them is told so first.
	Locked func() error

	// Unary and Stream are called around everything else, for metrics of the calls.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor
}

// Server serves the node's own API.
type Server struct {
	config  Config
	doors   []door
	callers *callers
	audit   *audit
	logs    filewatch.Watcher
	scrapes scrapes
	running *running
	// held is what clients over TCP have the core hold. On the local socket nothing is counted: who uses it may do anything with the core.
	held *held.Counts
	// address is where TCP is served, and problem why it is not.
	address, problem event.Value[string]
	// stopping ends when the server begins to stop, for the calls that would otherwise never end.
	stopping context.Context
	stop     context.CancelCauseFunc
}

// door is one way in.
type door struct {
	name     string
	listener *crowd
	server   *grpc.Server
}

// New listens; nothing is answered before Run. It fails if it cannot listen (see AwaitFree), and if an RPC does not declare who may
// call it.
func New(config Config) (*Server, error) {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	if config.Directory == nil {
		config.Directory = new(event.Value[*hostv1.Directory])
	}
	if config.Operators == nil {
		config.Operators = new(event.Value[[]*clusterv1.Operator])
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Recorder == nil && config.Events != nil {
		config.Recorder = config.Events
	}
	s := &Server{
		config:  config,
		callers: &callers{identity: config.Identity, operators: config.Operators, directory: config.Directory, now: config.Now},
		audit:   newAudit(config.Recorder),
		running: newRunning(),
		held:    held.New(bounds),
	}
	s.stopping, s.stop = context.WithCancelCause(context.Background())
	local, err := s.newGRPC(bare{peercred.Credentials(checkLocal)})
	if err != nil {
		return nil, err
	}
	listener, err := config.Socket.serve()
	if err != nil {
		return nil, err
	}
	s.doors = append(s.doors, door{"socket", newCrowd(listener, nil), local})
	if config.Listen == "" {
		return s, nil
	}
	remote, err := s.newGRPC(recognising{credentials.NewTLS(s.tlsConfig())})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if listener, err = s.listen(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.doors = append(s.doors, door{"tcp", newCrowd(listener, s.held), remote})
	return s, nil
}

// Address is the host:port that TCP is served on; empty if it is not.
func (s *Server) Address() string {
	address, _ := s.address.Get()
	return address
}

// Listening is what Address returns.
func (s *Server) Listening() *event.Value[string] { return &s.address }

// Problem is why TCP is not served although it is to be, and what to do; empty: it is served, or is not to be.
func (s *Server) Problem() *event.Value[string] { return &s.problem }

// Close gives up what New made, for a server whose Run is never called.
func (s *Server) Close() error {
	s.stop(nil)
	var problems []error
	for _, d := range s.doors {
		if err := d.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			problems = append(problems, fmt.Errorf("nodeapi: %w", err))
		}
	}
	return errors.Join(problems...)
}

// Idle is closed when the server has been asked to end and no call uses anything of the node any more, but Seal, which waits.
func (s *Server) Idle() <-chan struct{} { return s.running.idle }

// Run serves until the context ends, and returns nil when every call has ended: calls that are on their way have a moment to finish, then
// they are cut off, and are told the cause of the context's end, if there is one. Seal is waited for as long as it takes, so that its caller has the answer.
// Run returns an error if a listener fails, and may be called once.
func (s *Server) Run(ctx context.Context) error {
	type end struct {
		door string
		err  error
	}
	ended := make(chan end, len(s.doors))
	for _, d := range s.doors {
		go func() { ended <- end{d.name, d.server.Serve(d.listener)} }()
	}
	var failure error
	running := len(s.doors)
	select {
	case <-ctx.Done():
	case e := <-ended:
		running--
		failure = fmt.Errorf("nodeapi: the %s of the node's API failed: %w", e.door, e.err)
	}
	s.stop(context.Cause(ctx))
	s.end()
	for range running {
		<-ended
	}
	s.logs.Wait()
	return failure
}

// newGRPC makes a server of the API for one way in.
func (s *Server) newGRPC(transport credentials.TransportCredentials) (*grpc.Server, error) {
	gate := gate{callers: s.callers, audit: s.audit, running: s.running, ending: s.errEnding, shut: s.shut}
	// Around the gate, and again within it, so that a call that panicked is recorded as one that failed.
	recovered := recovery.WithRecoveryHandlerContext(s.recovered)
	unary, stream := recovery.UnaryServerInterceptor(recovered), recovery.StreamServerInterceptor(recovered)
	server := grpc.NewServer(append(s.held.Options(),
		grpc.Creds(transport),
		grpc.InTapHandle(s.held.Begin),
		grpc.ChainUnaryInterceptor(append(slices.Clone(s.config.Unary), unary, gate.unary, s.held.Unary, unary)...),
		grpc.ChainStreamInterceptor(append(slices.Clone(s.config.Stream), stream, gate.stream, s.held.Stream, stream)...),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		// Stop returns only when no handler runs any more.
		grpc.WaitForHandlers(true),
	)...)
	nodev1.RegisterNodeServiceServer(server, &service{Server: s})
	permitted, err := permissions(server.GetServiceInfo())
	if err != nil {
		return nil, err
	}
	gate.permitted = permitted
	return server, nil
}
