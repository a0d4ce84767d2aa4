package address

import (
	"context"
	"net"
	"strings"
	"syscall"
)

// Listen listens on a host:port, where no host means all addresses, of IPv4 and of IPv6.
func Listen(ctx context.Context, hostPort string) (net.Listener, error) {
	if !strings.HasPrefix(hostPort, ":") || everywhere() {
		return new(net.ListenConfig).Listen(ctx, "tcp", hostPort)
	}
	both := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		if err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0)
		}); err != nil {
			return err
		}
		return failed
	}}
	return both.Listen(ctx, "tcp6", "[::]"+hostPort)
}

// Hears reports whether package net hears an address of this machine where it is asked for all: on a machine that has no 127.0.0.1 it takes those of IPv4 only.
func Hears(address string) bool {
	ip := net.ParseIP(address)
	return ip == nil || ip.To4() != nil || everywhere()
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
