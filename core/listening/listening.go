// Package listening listens on TCP addresses that may be somebody else's, or not be the machine's yet. It owns the listener that it makes, and watches and
// publishes nothing.
package listening

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// again is how long it takes until an address is tried again that could not be listened on.
const again = time.Second

// Listener accepts connections as soon as it has its address, and takes the address again if it loses it.
type Listener struct {
	address string
	told    func(address string, problem error)
	closed  chan struct{}
	close   func()

	mu   sync.Mutex
	real net.Listener // nil: none yet
}

// Listen listens now or, if somebody else has the address or the machine does not have it, later. It fails if it never will. told is told of the address that is
// listened on, or else why none is, with every try.
func Listen(address string, told func(address string, problem error)) (*Listener, error) {
	closed := make(chan struct{})
	l := &Listener{address: address, told: told, closed: closed, close: sync.OnceFunc(func() { close(closed) })}
	if err := l.open(); err != nil && !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil, err
	}
	return l, nil
}

func (l *Listener) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		l.told("", err)
		return err
	}
	if l.isClosed() {
		return errors.Join(net.ErrClosed, listener.Close())
	}
	l.real = listener
	l.told(listener.Addr().String(), nil)
	return nil
}

func (l *Listener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

func (l *Listener) opened() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.real
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		if real := l.opened(); real != nil {
			conn, err := real.Accept()
			var passing interface{ Temporary() bool }
			if err == nil || l.isClosed() || errors.As(err, &passing) && passing.Temporary() {
				return conn, err
			}
			l.lose(real, err)
		}
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case <-time.After(again):
			_ = l.open() // told was told
		}
	}
}

// lose gives up a listener that accepts nobody any more.
func (l *Listener) lose(real net.Listener, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = real.Close()
	l.real = nil
	l.told("", err)
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.close()
	if real := l.opened(); real != nil {
		return real.Close()
	}
	return nil
}

// Addr implements net.Listener. There is none while the address cannot be had.
func (l *Listener) Addr() net.Addr {
	if real := l.opened(); real != nil {
		return real.Addr()
	}
	return &net.UnixAddr{Net: "tcp"}
}
