package role

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/reeveproject/reeve/sdk/peercred"

	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

const (
	// startTime is how long the process waits for Start. A core starts it within seconds, and one that died must not leave it behind.
	startTime = 2 * time.Minute
	// flushTime is how long the process waits for its last answers before it ends, in steps of flushStep.
	flushTime, flushStep = 2 * time.Second, 100 * time.Millisecond
)

// Serve offers the plugin's roles to the core that started the process, runs the role that the core starts, and ends the process. It does not return.
// Call it first in main: a role's work belongs in Run. If started by hand with the argument -debug, for instance in a debugger, the process waits for
// a node to use it in place of its own instance (`reeve node role debug`). Serve sets Go's memory limit to nine tenths of the instance's memory,
// unless the environment has GOMEMLIMIT.
func Serve(p Plugin) {
	os.Exit(serve(p))
}

func serve(p Plugin) int {
	stdio := &stdio{stdout: os.Stdout, stderr: os.Stderr}
	debug := debugged(os.Args)
	newLog := func(name string) hclog.Logger {
		// Debug level, because what is not written here is lost. The core shows the level that it is told to.
		return hclog.New(&hclog.LoggerOptions{Name: name, Level: hclog.Debug, Output: stdio.stderr, JSONFormat: !debug})
	}
	s, err := newServer(p, newLog)
	if err != nil {
		fmt.Fprintf(stdio.stderr, "%s\n", err)
		return 1
	}
	transport := &pluginTransport{server: s, log: newLog("sdk"), stdio: stdio}
	serve, patience := transport.serve, startTime
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	switch {
	case debug:
		socket, err := listenToDebug()
		if err != nil {
			fmt.Fprintf(stdio.stderr, "cannot listen for a node: %s\n", err)
			return 1
		}
		defer socket.remove()
		serve, patience = func() { transport.serveDebug(socket) }, 0
		signal.Notify(terminate, syscall.SIGINT)
		socket.invite(stdio.stderr, p)
	case os.Getenv(Handshake.MagicCookieKey) != Handshake.MagicCookieValue:
		explain(stdio.stderr, p)
		return 1
	default:
		// SIGINT reaches a role when somebody stops the core with Ctrl-C; stopping roles is the core's part. SIGPIPE would kill a role at its next
		// line of output after the reader has died. Nobody needs to receive from this channel.
		signal.Ignore(syscall.SIGINT)
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}

	served := make(chan struct{})
	go func() {
		defer close(served)
		serve()
	}()

	code := await(s, patience, terminate, served, stdio.stderr)
	transport.end()
	<-served
	return code
}

// await waits for a reason to end the process and returns the exit status. patience is how long to wait for Start; 0 means for ever.
func await(s *server, patience time.Duration, terminate <-chan os.Signal, served <-chan struct{}, stderr io.Writer) int {
	notStarted := time.NewTimer(patience)
	defer notStarted.Stop()
	if patience == 0 {
		notStarted.Stop()
	}
	started := s.started
	var terminating sync.Once
	for {
		select {
		case code := <-s.end:
			return code
		case <-started:
			notStarted.Stop()
			started = nil
		case <-notStarted.C:
			fmt.Fprintf(stderr, "no role was started within %s; the core that started the process is gone\n", patience)
			return 1
		case <-terminate:
			// s.end reports its end.
			terminating.Do(func() { go s.stop(s.grace(), StopUnknown) })
		case <-served:
			// The listener failed, or somebody used go-plugin's own way to end a plugin.
			s.stop(s.grace(), StopUnknown)
			if s.instance.Load() == nil {
				return 1
			}
			return <-s.end
		}
	}
}

// explain tells somebody who started the plugin by hand what to do with it.
func explain(out io.Writer, p Plugin) {
	executable, err := os.Executable()
	if err != nil {
		executable = os.Args[0]
	}
	names := make([]string, len(p.Roles))
	for n, role := range p.Roles {
		names[n] = role.Name
		if role.Summary != "" {
			names[n] += " (" + role.Summary + ")"
		}
	}
	fmt.Fprintf(out, "This is the plugin %s %s of a Reeve cluster, with the role %s.\n"+
		"The nodes of a cluster run it; started by hand it does nothing. To add it to a cluster:\n\n"+
		"\treeve plugin add %s\n"+
		"\treeve node role add NODE %s\n\n"+
		"With -debug, for a debugger, it waits until a node uses it in place of its own instance of the role.\n",
		p.Name, p.Version, strings.Join(names, ", "), executable, p.Roles[0].Name)
}

// pluginTransport is the plugin connection's server.
type pluginTransport struct {
	plugin.NetRPCUnsupportedPlugin
	server *server
	log    hclog.Logger
	stdio  *stdio
	// made is the gRPC server; nil before go-plugin has asked for it.
	mu    sync.Mutex
	ended bool
	made  *grpc.Server
}

var _ plugin.GRPCPlugin = (*pluginTransport)(nil)

// serve performs the handshake and serves until end.
func (t *pluginTransport) serve() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: Handshake,
		VersionedPlugins: map[int]plugin.PluginSet{
			int(Handshake.ProtocolVersion): {PluginName: t},
		},
		GRPCServer: t.newServer,
		// At lower levels go-plugin logs every step.
		Logger: hclog.New(&hclog.LoggerOptions{Name: "go-plugin", Level: hclog.Error, Output: t.stdio.stderr, JSONFormat: true}),
	})
}

func (t *pluginTransport) newServer(options []grpc.ServerOption) *grpc.Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made = grpc.NewServer(append(options,
		grpc.Creds(peercred.Credentials(t.admit)),
		grpc.MaxRecvMsgSize(MaxMessageSize), grpc.MaxSendMsgSize(MaxMessageSize),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(recoverUnary(t.log)), grpc.ChainStreamInterceptor(recoverStream(t.log)),
	)...)
	if t.ended {
		t.made.Stop()
	}
	return t.made
}

// end waits for running calls, at most for flushTime, and ends the server. Time in which this process does not run is not counted, so that a machine that stands still for
// seconds takes no answer away: a ticker drops what nobody has waited for.
func (t *pluginTransport) end() {
	t.mu.Lock()
	t.ended = true
	made := t.made
	t.mu.Unlock()
	if made == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		made.GracefulStop()
	}()
	ticker := time.NewTicker(flushStep)
	defer ticker.Stop()
	for range flushTime / flushStep {
		select {
		case <-ended:
			return
		case <-ticker.C:
		}
	}
	made.Stop()
	<-ended
}

// admit is called for every connection, before its first call.
func (t *pluginTransport) admit(peer peercred.Peer) error {
	t.stdio.restore(t.log)
	i := t.server.instance.Load()
	if i == nil && (peer.UID == 0 || peer.UID == uint32(os.Getuid())) || i != nil && peer.UID == i.host.request.GetCoreUid() {
		return nil
	}
	t.log.Error("refused a connection that does not come from the core", "uid", peer.UID, "pid", peer.PID)
	return fmt.Errorf("user %d is not the core", peer.UID)
}

// GRPCServer implements plugin.GRPCPlugin.
func (t *pluginTransport) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	rolev1.RegisterRoleServiceServer(server, t.server)
	t.server.gate.register(server)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin. The core dials the socket itself.
func (t *pluginTransport) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("role: dial the plugin's socket and use reeve.role.v1")
}
