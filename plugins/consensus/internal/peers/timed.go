package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/proto/address"
)

// limits are how long a connection may stand still. 0: for ever.
type limits struct {
	// silence is how long nothing may come, or go out of the process.
	silence time.Duration
	// untaken is how long the other machine may acknowledge nothing of what was sent, or have no room for more. Without it the kernel sends again, ever more rarely, for a quarter of an hour: what is
	// sent over the connection could be late by minutes after a partition has healed.
	untaken time.Duration
}

// onStreams are for connections over which something comes and goes all the time.
func onStreams() limits {
	return limits{silence: rafthttp.DefaultConnReadTimeout, untaken: rafthttp.DefaultConnWriteTimeout}
}

// onMessages are for connections over which snapshots go as well: a member whose disk is slow takes nothing for some seconds, and would need all of a snapshot anew.
func onMessages() limits { return limits{untaken: 20 * time.Second} }

// control sets the limits of a socket which are the kernel's. An accepted connection has those of the socket that listens.
func (l limits) control(_, _ string, socket syscall.RawConn) error {
	var refused error
	err := socket.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.untaken.Milliseconds()))
	})
	if err := errors.Join(err, refused); err != nil {
		return fmt.Errorf("cannot bound how long a peer may take nothing: %w", err)
	}
	return nil
}

// Bind takes an address (host:port) for Serve. Its connections end when the peer does not take for some seconds what is sent to it.
func Bind(hostPort string) (net.Listener, error) {
	config := net.ListenConfig{KeepAlive: keepAlive, Control: onStreams().control}
	config.SetMultipathTCP(false) // it knows no such limit
	listen, err := address.ListenWith(context.Background(), config, hostPort)
	if err != nil {
		return nil, fmt.Errorf("listen for the other members of the store: %w", err)
	}
	return listen, nil
}

// timed is a connection that ends by silence.
type timed struct {
	net.Conn
	silence time.Duration // 0: never
}

// Read implements net.Conn.
func (c timed) Read(into []byte) (int, error) {
	if c.silence > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(into)
}

// Write implements net.Conn.
func (c timed) Write(content []byte) (int, error) {
	if c.silence > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(content)
}
