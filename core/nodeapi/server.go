package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/reeveproject/reeve/core/identity"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/peercred"
)

const (
	// stopGrace is how long calls may go on when the core stops. Watches end at once; what may take longer is an import, which can be
	// begun again.
	stopGrace = 2 * time.Second
	// handshakeTimeout is how long a connection may take to prove who it is.
	handshakeTimeout = 10 * time.Second
	// maxStreams bounds the calls on one connection.
	maxStreams = 64
	// maxHeaders bounds the metadata of a call, of which the API uses none.
	maxHeaders = 16 << 10
	// minPing is how often a client may ask whether the connection lives; pingAfter is when the server asks by itself, and pingTimeout
	// how long it waits for an answer before it takes the client for gone.
	minPing     = 5 * time.Second
	pingAfter   = 30 * time.Second
	pingTimeout = 10 * time.Second
)

// Config is what the server needs.
type Config struct {
	// Log takes the server's log; nil: none is written.
	Log hclog.Logger
	// Socket is the path of the local socket, at most 107 bytes long. A socket that an earlier core left there is replaced: the lock on the
	// node's directories says that it is gone.
	Socket string
	// Listen is host:port for TCP; port 0: a free one; empty: the API is served on the socket only.
	Listen string
	// Status is what GetStatus and WatchStatus answer.
	Status *event.Value[*nodev1.Status]
	// Identity has the SVID with which the server proves itself over TCP, and the owner's key.
	Identity *event.Value[*identity.Identity]
	// Import keeps an executable and asks it for its manifest. It must not read after it has returned.
	Import func(ctx context.Context, executable io.Reader) (digest string, manifest *rolev1.Manifest, err error)
	// LogPath is the file to which the instances of a role write; false: the node has no such role.
	LogPath func(role string) (path string, ok bool)
}

// Server serves the node's own API.
type Server struct {
	config Config
	doors  []door
	// stopping is closed when the server begins to stop, for the calls that would otherwise never end.
	stopping chan struct{}
}

// door is one way in.
type door struct {
	name     string
	listener net.Listener
	server   *grpc.Server
}

// New listens; nothing is answered before Run. It fails if the socket or the port cannot be had, and if an RPC does not declare who may
// call it.
func New(config Config) (*Server, error) {
	if config.Log == nil {
		config.Log = hclog.NewNullLogger()
	}
	s := &Server{config: config, stopping: make(chan struct{})}
	local, err := s.newGRPC(peercred.Credentials(checkLocal))
	if err != nil {
		return nil, err
	}
	listener, err := listenLocal(config.Socket)
	if err != nil {
		return nil, err
	}
	s.doors = append(s.doors, door{"socket", listener, local})
	if config.Listen == "" {
		return s, nil
	}
	remote, err := s.newGRPC(credentials.NewTLS(s.tlsConfig()))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	listener, err = net.Listen("tcp", config.Listen)
	if err != nil {
		err = fmt.Errorf("nodeapi: the node's API cannot listen on %s (parameter network.api_listen): %w", config.Listen, err)
		return nil, errors.Join(err, s.Close())
	}
	s.doors = append(s.doors, door{"tcp", listener, remote})
	return s, nil
}

// Address is the host:port that TCP is served on; empty if it is not.
func (s *Server) Address() string {
	for _, d := range s.doors {
		if d.name == "tcp" {
			return d.listener.Addr().String()
		}
	}
	return ""
}

// Close gives up what New made, for a server whose Run is never called.
func (s *Server) Close() error {
	var problems []error
	for _, d := range s.doors {
		if err := d.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			problems = append(problems, fmt.Errorf("nodeapi: %w", err))
		}
	}
	return errors.Join(problems...)
}

// Run serves until the context ends, and returns nil when every call has ended: calls that are on their way have a moment to finish, then
// they are cut off. It returns an error if a listener fails, and may be called once.
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
	close(s.stopping)
	var graceful sync.WaitGroup
	for _, d := range s.doors {
		graceful.Go(d.server.GracefulStop)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		graceful.Wait()
	}()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-stopped:
	case <-grace.C:
		s.config.Log.Info("calls of the node's API did not end in time and are cut off", "grace", stopGrace)
		for _, d := range s.doors {
			d.server.Stop()
		}
		<-stopped
	}
	for range running {
		<-ended
	}
	return failure
}

// newGRPC makes a server of the API for one way in.
func (s *Server) newGRPC(transport credentials.TransportCredentials) (*grpc.Server, error) {
	var gate gate
	recovered := recovery.WithRecoveryHandlerContext(s.recovered)
	server := grpc.NewServer(
		grpc.Creds(transport),
		grpc.ChainUnaryInterceptor(recovery.UnaryServerInterceptor(recovered), gate.unary),
		grpc.ChainStreamInterceptor(recovery.StreamServerInterceptor(recovered), gate.stream),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		// A message's data and the few bytes around it.
		grpc.MaxRecvMsgSize(maxPart+64),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		// Stop returns only when no handler runs any more.
		grpc.WaitForHandlers(true),
	)
	nodev1.RegisterNodeServiceServer(server, &service{Server: s})
	permitted, err := permissions(server.GetServiceInfo())
	if err != nil {
		return nil, err
	}
	gate.permitted = permitted
	gate.owner = s.owner
	return server, nil
}
