// Package listening listens on TCP addresses that may be somebody else's, or not be the machine's yet. It owns the listener that it makes, and watches and
// publishes nothing.
package listening

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/address"
)

// again is how long it takes until an address is tried again that could not be listened on, and until it is looked again whether the machine still has one.
const again = time.Second

// Listener accepts connections as soon as it has its address, and takes the address again if it loses it.
type Listener struct {
	address string
	told    func(address string, problem error)
	closed  chan struct{}
	close   func()

	// watching is the worker that looks whether the machine still has the address.
	watching sync.WaitGroup

	mu   sync.Mutex
	real net.Listener // nil: none yet
	gone bool         // the machine does not have the address any more
}

// Listen listens now, or later if the machine does not have the address now or, with awaitFree, if another program listens there. Otherwise it fails. told is told of the
// address that is listened on, or else why none is, with every try.
func Listen(address string, awaitFree bool, told func(address string, problem error)) (*Listener, error) {
	l, err := listen(address, awaitFree, told)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	// The machine does not lose all of its addresses, nor those of loopback. A name may stand for another address meanwhile.
	if ip, err := netip.ParseAddr(host); err == nil && !ip.IsUnspecified() && !ip.IsLoopback() {
		l.watching.Go(func() { l.watch(host) })
	}
	return l, nil
}

func listen(address string, awaitFree bool, told func(address string, problem error)) (*Listener, error) {
	closed := make(chan struct{})
	l := &Listener{address: address, told: told, closed: closed, close: sync.OnceFunc(func() { close(closed) })}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.take(); err != nil {
		if !errors.Is(err, unix.EADDRNOTAVAIL) && !(awaitFree && errors.Is(err, unix.EADDRINUSE)) {
			return nil, err
		}
		l.told("", err)
	}
	return l, nil
}

// Advice is what to do about a problem that told was told of.
func Advice(problem error) string {
	if errors.Is(problem, unix.EADDRNOTAVAIL) {
		return "give the machine the address"
	}
	return "stop the process that listens there"
}

// open takes the address, or tells why not.
func (l *Listener) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.take()
	if err != nil {
		l.told("", err)
	}
	return err
}

// take takes the address. The lock is held.
func (l *Listener) take() error {
	listener, err := address.Listen(context.Background(), l.address)
	if err != nil {
		return err
	}
	if l.isClosed() {
		return errors.Join(net.ErrClosed, listener.Close())
	}
	l.real, l.gone = listener, false
	l.told(listener.Addr().String(), nil)
	return nil
}

// watch looks again and again whether the machine has the address, until the listener is closed.
func (l *Listener) watch(host string) {
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for {
		select {
		case <-l.closed:
			return
		case <-ticker.C:
			l.look(host)
		}
	}
}

// look tells of an address that the machine has lost, or has again: nobody else does, as the kernel leaves the listener as it is. It accepts again when the address is back.
func (l *Listener) look(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.real == nil || l.isClosed() {
		return
	}
	socket, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err == nil {
		_ = socket.Close()
	}
	gone := errors.Is(err, unix.EADDRNOTAVAIL)
	switch {
	case gone == l.gone:
		return
	case gone:
		l.told("", fmt.Errorf("this machine does not have the address any more: %w", unix.EADDRNOTAVAIL))
	default:
		l.told(l.real.Addr().String(), nil)
	}
	l.gone = gone
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
	l.watching.Wait()
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
