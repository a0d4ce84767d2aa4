package address

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// Listen listens on a host:port, where no host, or ::, means all addresses, of IPv4 and of IPv6.
func Listen(ctx context.Context, hostPort string) (net.Listener, error) {
	return ListenWith(ctx, net.ListenConfig{}, hostPort)
}

// ListenWith is Listen with settings. It asks the kernel for all addresses, since package net takes them for those of IPv4 alone in a process that began without 127.0.0.1.
func ListenWith(ctx context.Context, config net.ListenConfig, hostPort string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if everywhere, _ := netip.ParseAddr(host); err != nil || host != "" && everywhere != netip.IPv6Unspecified() {
		return config.Listen(ctx, "tcp", hostPort)
	}
	both := config
	both.Control = func(network, address string, raw syscall.RawConn) error {
		if config.Control != nil {
			if err := config.Control(network, address, raw); err != nil {
				return err
			}
		}
		var refused error
		err := raw.Control(func(fd uintptr) {
			refused = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0)
		})
		return errors.Join(err, refused)
	}
	listener, err := both.Listen(ctx, "tcp6", net.JoinHostPort("::", port))
	if errors.Is(err, syscall.EAFNOSUPPORT) {
		return config.Listen(ctx, "tcp", hostPort) // the kernel has no IPv6
	}
	return listener, err
}
