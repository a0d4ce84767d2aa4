package address

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
)

// Listen listens on a host:port, where no host means all addresses, of IPv4 and of IPv6.
func Listen(ctx context.Context, hostPort string) (net.Listener, error) {
	return ListenWith(ctx, net.ListenConfig{}, hostPort)
}

// ListenWith is Listen with settings. On a machine that has no 127.0.0.1, package net takes all addresses for those of IPv4 alone.
func ListenWith(ctx context.Context, config net.ListenConfig, hostPort string) (net.Listener, error) {
	if !strings.HasPrefix(hostPort, ":") || everywhere() {
		return config.Listen(ctx, "tcp", hostPort)
	}
	control := config.Control
	config.Control = func(network, address string, raw syscall.RawConn) error {
		if control != nil {
			if err := control(network, address, raw); err != nil {
				return err
			}
		}
		var refused error
		err := raw.Control(func(fd uintptr) {
			refused = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0)
		})
		return errors.Join(err, refused)
	}
	return config.Listen(ctx, "tcp6", "[::]"+hostPort)
}

// everywhere reports whether package net takes all addresses for all. What the kernel does not have it need not take.
func everywhere() bool {
	mapped := syscall.SockaddrInet6{Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
	socket, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // there is no IPv6
	}
	defer func() { _ = syscall.Close(socket) }()
	return syscall.SetsockoptInt(socket, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0) == nil && syscall.Bind(socket, &mapped) == nil
}
