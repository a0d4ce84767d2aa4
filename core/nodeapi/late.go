package nodeapi

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listenAgain is how long it takes until an address is tried again that could not be listened on.
const listenAgain = time.Second

// late is a listener whose address may be somebody else's, or not be the machine's yet, when it is made: it accepts when it has the address.
type late struct {
	address string
	// told is told of the address that is listened on, or else why none is.
	told   func(address string, problem error)
	closed chan struct{}
	close  func()

	mu   sync.Mutex
	real net.Listener // nil: none yet
}

// listenLate listens, now or later. It fails if it will never do.
func listenLate(address string, told func(address string, problem error)) (*late, error) {
	closed := make(chan struct{})
	l := &late{address: address, told: told, closed: closed, close: sync.OnceFunc(func() { close(closed) })}
	if err := l.open(); err != nil && !passing(err) {
		return nil, err
	}
	return l, nil
}

// passing says whether an address that could not be listened on may be had later.
func passing(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// listenTCP listens for the node's own API.
func listenTCP(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("nodeapi: the node's API cannot listen on %s (parameter network.api_listen): %w", address, err)
	}
	return listener, nil
}

func (l *late) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	listener, err := listenTCP(l.address)
	if err != nil {
		l.told("", err)
		return err
	}
	select {
	case <-l.closed:
		return errors.Join(net.ErrClosed, listener.Close())
	default:
	}
	l.real = listener
	l.told(listener.Addr().String(), nil)
	return nil
}

func (l *late) opened() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.real
}

// Accept implements net.Listener.
func (l *late) Accept() (net.Conn, error) {
	for {
		if real := l.opened(); real != nil {
			return real.Accept()
		}
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case <-time.After(listenAgain):
			_ = l.open() // told was told
		}
	}
}

// Close implements net.Listener.
func (l *late) Close() error {
	l.close()
	if real := l.opened(); real != nil {
		return real.Close()
	}
	return nil
}

// Addr implements net.Listener. There is none while the address cannot be had.
func (l *late) Addr() net.Addr {
	if real := l.opened(); real != nil {
		return real.Addr()
	}
	return &net.UnixAddr{Net: "tcp"}
}
