package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var networkAttempts = map[string]func(*attempt){
	"network.raw":     rawSockets,
	"network.route":   routes,
	"network.exotic":  exoticSockets,
	"network.none":    noNetwork,
	"network.connect": otherPorts,
	"network.listen":  listenPorts,
}

func (a *attempt) socket(what string, family, kind, protocol int) {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if a.try("socket "+what, err) {
		_ = unix.Close(fd)
	}
}

func rawSockets(a *attempt) {
	a.socket("raw ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	a.socket("raw IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	a.socket("raw IPv6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
	a.socket("packet", unix.AF_PACKET, unix.SOCK_RAW, 0x0300)
	a.socket("packet, datagram", unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300)
	a.socket("XDP", unix.AF_XDP, unix.SOCK_RAW, 0)
}

// routes asks the kernel for changes of the network over netlink: a route to a network for documentation, by way of the loopback.
func routes(a *attempt) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		a.try("socket netlink", err)
		return
	}
	defer unix.Close(fd)
	tv := unix.Timeval{Sec: 1}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	add := []byte{
		44, 0, 0, 0, 24, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0, // RTM_NEWROUTE, request, acknowledge, create, exclusive
		unix.AF_INET, 32, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0,
		8, 0, 1, 0, 192, 0, 2, 77, // destination
		8, 0, 4, 0, 1, 0, 0, 0, // by the loopback
	}
	a.try("add a route", netlink(fd, add))
	// RTM_NEWLINK with a change of nothing: EPERM unless permitted.
	a.try("change an interface", netlink(fd, []byte{32, 0, 0, 0, 16, 0, 5, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}))
	a.socket("netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	a.socket("audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)
	a.socket("kernel events", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
}

func netlink(fd int, message []byte) error {
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n >= 20 && answer[4] == unix.NLMSG_ERROR {
		if code := -int32(uint32(answer[16]) | uint32(answer[17])<<8 | uint32(answer[18])<<16 | uint32(answer[19])<<24); code != 0 {
			return unix.Errno(code)
		}
	}
	return nil
}

func exoticSockets(a *attempt) {
	a.socket("AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
	a.socket("vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	a.socket("bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 1)
	a.socket("CAN", unix.AF_CAN, unix.SOCK_RAW, 1)
	a.socket("TIPC", unix.AF_TIPC, unix.SOCK_SEQPACKET, 0)
	a.socket("RDS", unix.AF_RDS, unix.SOCK_SEQPACKET, 0)
	a.socket("key", unix.AF_KEY, unix.SOCK_RAW, 2)
	a.socket("QIPCRTR", unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0)
	a.socket("SMC", unix.AF_SMC, unix.SOCK_STREAM, 0)
	a.socket("MPTCP", unix.AF_INET, unix.SOCK_STREAM, 262)
	a.socket("SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
}

// noNetwork is what a role without any port tries.
func noNetwork(a *attempt) {
	a.socket("TCP", unix.AF_INET, unix.SOCK_STREAM, 0)
	a.socket("TCP over IPv6", unix.AF_INET6, unix.SOCK_STREAM, 0)
	a.socket("UDP", unix.AF_INET, unix.SOCK_DGRAM, 0)
	a.socket("UDP over IPv6", unix.AF_INET6, unix.SOCK_DGRAM, 0)
	a.socket("ping", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	for _, address := range a.list("addresses") {
		a.tcp(address)
	}
}

func (a *attempt) tcp(address string) {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(address, "http://"), 2*time.Second)
	if a.try("connect to "+address, err) {
		_ = conn.Close()
	}
}

// otherPorts connects to what listens on ports that are not granted.
func otherPorts(a *attempt) {
	for _, address := range a.list("addresses") {
		a.tcp(address)
	}
	err := connectOnly("127.0.0.1:1")
	if errors.Is(err, unix.ECONNREFUSED) {
		a.result.Values["works"] = "yes" // the granted port: nobody listens, and it was allowed to ask
	}
	a.note("connect to the granted port", fmt.Sprint(err))
	// TCP fast open sends and connects at once.
	for _, address := range a.list("addresses") {
		resolved, err := net.ResolveTCPAddr("tcp4", address)
		if err != nil {
			continue
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			continue
		}
		to := &unix.SockaddrInet4{Port: resolved.Port}
		copy(to.Addr[:], resolved.IP.To4())
		a.try("connect to "+address+" by fast open", unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, to))
		_ = unix.Close(fd)
	}
}

func connectOnly(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func listenPorts(a *attempt) {
	for _, address := range []string{"127.0.0.1:0", "127.0.0.1:80", "127.0.0.1:3000", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if a.try("listen at "+address, err) {
			_ = listener.Close()
		}
	}
	// Listening without binding: the kernel chooses a port.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		// Landlock does not see this. It is a port that nobody can be told of beforehand, so no other service is taken the place of.
		a.note("listen without binding", say(or(unix.Listen(fd, 1))))
		_ = unix.Close(fd)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:2999")
	if err == nil {
		a.result.Values["works"] = "yes"
		_ = listener.Close()
	}
	a.note("listen on the granted port", fmt.Sprint(err))
}
