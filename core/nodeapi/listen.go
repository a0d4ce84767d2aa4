package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/listening"
	"github.com/reeveproject/reeve/proto/limits"
)

// socketMode admits the core's user, and root, who needs no mode.
const socketMode = 0o600

// Socket is the node's local socket. It exists as long as the core runs. Servers take turns on it; a client that connects while no server runs waits for the next one.
type Socket struct {
	path string

	mu       sync.Mutex
	listener *net.UnixListener
	turns    map[*turn]struct{}
}

// Listen makes the local socket at a path of at most 107 bytes. A socket that an earlier core left there is replaced: the lock on the node's directories
// says that it is gone. It is an error if anything else is there, which is left alone.
func Listen(path string) (*Socket, error) {
	if len(path) > limits.SocketPath {
		return nil, fmt.Errorf("nodeapi: the path of the node's socket, %s, is %d bytes long, and the kernel takes %d: choose a shorter run directory",
			path, len(path), limits.SocketPath)
	}
	listener, err := listenAt(path)
	if err != nil {
		return nil, err
	}
	return &Socket{path: path, listener: listener, turns: make(map[*turn]struct{})}, nil
}

func listenAt(path string) (*net.UnixListener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("nodeapi: the node's socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("nodeapi: %s exists and is not a socket (%s): move it away", path, info.Mode())
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("nodeapi: the socket that an earlier core left: %w", err)
		}
	}
	// The mode is set before bind, which makes the file with it: there is no moment at which others could open it, and no umask of
	// the whole process needs to change.
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var chmod error
		if err := raw.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), socketMode) }); err != nil {
			return err
		}
		return chmod
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("nodeapi: the node's socket: %w", err)
	}
	// A umask can only have taken bits away.
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("nodeapi: the node's socket: %w", err), listener.Close())
	}
	return listener.(*net.UnixListener), nil
}

// Mend makes the socket again if somebody removed it, and reports whether it did. Its directory must exist. A server that runs goes on with the new one, and with
// the connections that it has.
func (s *Socket) Mend() (mended bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	fresh, err := listenAt(s.path)
	if err != nil {
		return false, err
	}
	// All copies come first: without one, a server would never serve the new socket.
	copies := make(map[*turn]net.Listener)
	for turn := range s.turns {
		listener, err := copyOf(fresh)
		if err != nil {
			problems := []error{err, fresh.Close()} // which removes the file as well, so that the next call tries again
			for _, listener := range copies {
				problems = append(problems, listener.Close())
			}
			return false, errors.Join(problems...)
		}
		copies[turn] = listener
	}
	former := s.listener
	s.listener = fresh
	// The name is the new socket's.
	former.SetUnlinkOnClose(false)
	problems := []error{former.Close()}
	for turn, listener := range copies {
		problems = append(problems, turn.renew(listener))
	}
	return true, errors.Join(problems...)
}

// Close removes the socket. Servers of it that still run go on with the connections that they have.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.listener.Close(); err != nil {
		return fmt.Errorf("nodeapi: the node's socket: %w", err)
	}
	return nil
}

// serve returns the socket as one server has it, who may close it.
func (s *Socket) serve() (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listener, err := copyOf(s.listener)
	if err != nil {
		return nil, err
	}
	t := &turn{socket: s, listener: listener}
	s.turns[t] = struct{}{}
	return t, nil
}

func copyOf(socket *net.UnixListener) (net.Listener, error) {
	file, err := socket.File()
	if err != nil {
		return nil, fmt.Errorf("nodeapi: the node's socket: %w", err)
	}
	listener, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("nodeapi: the node's socket: %w", err)
	}
	return listener, nil
}

// turn is the socket as one server has it. It outlives the file.
type turn struct {
	socket *Socket

	mu       sync.Mutex
	listener net.Listener
	closed   bool
}

// Accept implements net.Listener.
func (t *turn) Accept() (net.Conn, error) {
	for {
		t.mu.Lock()
		listener := t.listener
		t.mu.Unlock()
		conn, err := listener.Accept()
		if err == nil {
			return conn, nil
		}
		t.mu.Lock()
		renewed := t.listener != listener && !t.closed
		t.mu.Unlock()
		if !renewed {
			return nil, err
		}
	}
}

// renew goes on with another listener.
func (t *turn) renew(listener net.Listener) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return listener.Close()
	}
	former := t.listener
	t.listener = listener
	return former.Close()
}

// Close implements net.Listener.
func (t *turn) Close() error {
	t.socket.mu.Lock()
	delete(t.socket.turns, t)
	t.socket.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.listener.Close()
}

// Addr implements net.Listener.
func (t *turn) Addr() net.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listener.Addr()
}

// listen listens for TCP.
func (s *Server) listen() (net.Listener, error) {
	listener, err := listening.Listen(s.config.Listen, s.config.AwaitFree, s.listens)
	if err != nil {
		return nil, s.unserved(err)
	}
	return listener, nil
}

func (s *Server) unserved(err error) error {
	return fmt.Errorf("nodeapi: the node's API cannot listen on %s (parameter network.api_listen): %w", s.config.Listen, err)
}

// listens takes note of where TCP is served, or why it is not.
func (s *Server) listens(address string, problem error) {
	former, _ := s.problem.Get()
	text := ""
	if problem != nil {
		text = strings.TrimPrefix(s.unserved(problem).Error(), "nodeapi: ") + ": " + listening.Advice(problem) + ", or change the parameter; it is tried again every second, and the local socket is served"
	}
	switch {
	case text == former && text != "":
		return // nobody is told the same every second
	case text == former:
	case text != "":
		s.config.Log.Error("the node's API is not served over TCP; it is tried again", "error", problem)
	default:
		s.config.Log.Info("the node's API is served over TCP again", "address", address)
	}
	s.address.Set(address)
	s.problem.Set(text)
}
