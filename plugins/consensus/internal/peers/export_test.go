package peers

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// Within is Messages with another limit of how long the other machine may take nothing.
func (o *Outgoing) Within(untaken time.Duration) *http.Transport {
	return o.transport(limits{untaken: untaken}, maxIdle)
}

// Untaken returns the kernel's limit of each connection.
func (o *Outgoing) Untaken() (found []time.Duration) {
	for _, c := range o.all() {
		found = append(found, untaken(c.Conn))
	}
	return found
}

// Untaken returns the kernel's limit of each connection.
func (l *Listener) Untaken() (found []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		found = append(found, untaken(c.Conn))
	}
	return found
}

func untaken(conn net.Conn) time.Duration {
	var ms int
	socket, err := conn.(timed).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return -1
	}
	if err := socket.Control(func(fd uintptr) { ms, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); err != nil {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}
