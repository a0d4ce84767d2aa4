package hostapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/hashicorp/go-hclog"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/rmtree"
	"github.com/reeveproject/reeve/proto/limits"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/held"
)

// The limits of one instance. A role needs one connection and about four streams; libraries may connect on their own. Together they limit what a
// hostile role makes the core hold to about 130 MiB, but for the directory, which all roles share.
const (
	maxConnections = 8
	maxStreams     = 16 // on one connection
	// The content of a file, its path and the expected digest.
	maxRequest = maxContent + 16<<10
	maxHeaders = 16 << 10
)

// Open makes and serves the host socket of an instance at RunDir/host/<remit.Name>/host.sock. closeSocket ends its connections and calls, waits for
// them and removes its files. Open fails if the instance's socket is already open.
func (s *Server) Open(remit *plugin.Remit) (path string, closeSocket func(), err error) {
	if remit == nil || remit.Name != filepath.Base(remit.Name) || remit.Name == "." || remit.Name == ".." || remit.Name == "/" {
		return "", nil, fmt.Errorf("hostapi: %q is not an instance name like <role>.<counter>", nameOf(remit))
	}
	if !s.claim(remit.Name) {
		return "", nil, fmt.Errorf("hostapi: the host socket of instance %s is already open: close it first", remit.Name)
	}
	directory := filepath.Join(s.root(), remit.Name)
	listener, err := listen(directory, remit)
	if err != nil {
		s.release(remit.Name)
		return "", nil, fmt.Errorf("hostapi: host socket of instance %s: %w", remit.Name, err)
	}
	log := s.log.With("role", remit.Role, "instance", remit.InstanceID)
	door := newDoor(listener, remit, log, s.directories.left)
	server := s.grpcServer(remit, log)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(door); err != nil && !errors.Is(err, net.ErrClosed) {
			log.Error("Cannot serve the host socket any longer; restart the role", "error", err)
		}
	}()
	shut := sync.OnceFunc(func() {
		// First the door: it ends connections that have not begun HTTP/2 yet, which Stop would wait for.
		door.shut()
		server.Stop()
		<-served
	})
	s.hold(remit.Name, shut)
	return filepath.Join(directory, socketName), sync.OnceFunc(func() {
		shut()
		if err := rmtree.Remove(context.Background(), directory); err != nil {
			log.Warn("Cannot remove the directory of the host socket; the next start of the core removes it", "error", err)
		}
		s.release(remit.Name)
	}), nil
}

// Leave ends the connections and calls of all open sockets and keeps their files, for instances that the next core serves again.
func (s *Server) Leave() {
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	for _, shut := range open {
		shut()
	}
}

const (
	socketName = "host.sock"
	// newSocketName is the name of a new socket before it replaces the old one. It is no longer than socketName, so the path limit holds for both.
	newSocketName = "new.sock"
)

func nameOf(remit *plugin.Remit) string {
	if remit == nil {
		return ""
	}
	return remit.Name
}

func (s *Server) claim(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.open[name]; taken {
		return false
	}
	s.open[name] = func() {} // not open yet
	return true
}

func (s *Server) hold(name string, shut func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[name] = shut
}

func (s *Server) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, name)
}

// listen makes an instance's socket in a directory of its own. Nobody can connect before both have their final owner and mode: a new directory is the
// core's alone until then, and in the existing directory of an adopted instance a rename replaces the old socket.
func listen(directory string, remit *plugin.Remit) (_ *net.UnixListener, err error) {
	path := filepath.Join(directory, socketName)
	if len(path) > limits.SocketPath {
		return nil, fmt.Errorf("the socket path %s has %d bytes, more than the kernel's limit of %d: set a shorter run directory in the node's parameters",
			path, len(path), limits.SocketPath)
	}
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := ownDirectory(directory); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, rmtree.Remove(context.Background(), directory))
		}
	}()
	fresh := filepath.Join(directory, newSocketName)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // it is removed with its directory
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()
	steps := []func() error{
		func() error { return os.Chown(fresh, -1, int(remit.GID)) },
		func() error { return os.Chmod(fresh, 0o660) },
		func() error { return os.Rename(fresh, path) },
		func() error { return os.Chown(directory, -1, int(remit.GID)) },
		func() error { return os.Chmod(directory, 0o710) },
	}
	if remit.SharedUID {
		// The role runs as the core's user, so owner permissions are enough. Others may be in the group.
		steps = []func() error{
			func() error { return os.Chmod(fresh, 0o600) },
			func() error { return os.Rename(fresh, path) },
		}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return listener, nil
}

// ownDirectory fails unless path is a directory of the core.
func ownDirectory(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory of the core: remove it", path)
	}
	return nil
}

// grpcServer makes one instance's server. With a server per instance, the caller is known without looking it up, and an instance ends with its
// server.
func (s *Server) grpcServer(remit *plugin.Remit, log hclog.Logger) *grpc.Server {
	recovered := recovery.WithRecoveryHandlerContext(func(_ context.Context, p any) error {
		// Log only the type: the value may quote what the role sent.
		log.Error("A call on the host socket panicked", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
		return status.Error(codes.Internal, "this call failed inside the core; the node's log says where: please report it to the Reeve project")
	})
	unary := append(slices.Clip(s.config.Unary), recovery.UnaryServerInterceptor(recovered),
		func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if err := s.rules.permit(remit, info.FullMethod, request); err != nil {
				log.Debug("Refused a call", "method", info.FullMethod, "reason", status.Convert(err).Message())
				return nil, err
			}
			return handler(ctx, request)
		},
	)
	stream := append(slices.Clip(s.config.Stream), recovery.StreamServerInterceptor(recovered),
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if err := s.rules.permit(remit, info.FullMethod, nil); err != nil {
				log.Debug("Refused a call", "method", info.FullMethod, "reason", status.Convert(err).Message())
				return err
			}
			return handler(srv, stream)
		},
	)
	server := grpc.NewServer(append(held.Options(),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(s.config.times.firstBytesWithin),
		// Stop returns when no handler runs any more, so nothing of an instance outlives its socket.
		grpc.WaitForHandlers(true),
		// A stopped or stuck role must not hold its streams for ever.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(stream...),
	)...)
	issues := newIssues(&s.config, remit)
	hostv1.RegisterHostServiceServer(server, &service{config: &s.config, directories: s.directories, files: &s.files, remit: remit, issues: issues, log: log})
	workload.RegisterSpiffeWorkloadAPIServer(server, &workloads{config: &s.config, issues: issues, log: log})
	return server
}
