package peers_test

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// withoutLoopback is set in the process that runs in a network namespace without 127.0.0.1: package net looks once in a process what a machine has.
const withoutLoopback = "REEVE_TEST_WITHOUT_LOOPBACK"

// A member hears the others at all of its addresses of IPv6 where the machine has no IPv4 at all: it is then found at its former address as well while all machines get another prefix.
func TestBindWithoutIPv4(t *testing.T) {
	if os.Getenv(withoutLoopback) == "" {
		for _, program := range []string{"unshare", "ip"} {
			if _, err := exec.LookPath(program); os.Getuid() != 0 || err != nil {
				t.Skip("needs root, unshare and ip: a network namespace is made")
			}
		}
		command := exec.Command("unshare", "-n", "sh", "-euc", `ip link set lo up; ip address delete 127.0.0.1/8 dev lo; ip address add fd00::1/128 dev lo; exec "$@"`, "sh", os.Args[0], "-test.run=^TestBindWithoutIPv4$")
		command.Env = append(os.Environ(), withoutLoopback+"=1")
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}
	bound, err := peers.Bind(":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bound.Close() }()
	_, port, err := net.SplitHostPort(bound.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"::1", "fd00::1"} {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Errorf("on %s: %v", bound.Addr(), err)
			continue
		}
		_ = conn.Close()
	}
}
