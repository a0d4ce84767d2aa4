package address_test

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/reeveproject/reeve/proto/address"
)

// withoutLoopback is set in the process that runs in a network namespace without 127.0.0.1: package net looks once in a process what a machine has.
const withoutLoopback = "REEVE_TEST_WITHOUT_LOOPBACK"

// All addresses are those of IPv6 too, on a machine that has no 127.0.0.1.
func TestListening(t *testing.T) {
	if os.Getenv(withoutLoopback) == "" {
		for _, program := range []string{"unshare", "ip"} {
			if _, err := exec.LookPath(program); os.Getuid() != 0 || err != nil {
				t.Skip("needs root, unshare and ip: a network namespace is made")
			}
		}
		command := exec.Command("unshare", "-n", "sh", "-euc", `ip link set lo up; ip address delete 127.0.0.1/8 dev lo; exec "$@"`, "sh", os.Args[0], "-test.run=^TestListening$")
		command.Env = append(os.Environ(), withoutLoopback+"=1")
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
	}
	set := false
	everywhere := net.ListenConfig{Control: func(string, string, syscall.RawConn) error {
		set = true
		return nil
	}}
	without := os.Getenv(withoutLoopback) != ""
	for _, hostPort := range []string{":0", "[::]:0"} {
		reached := reach(t, everywhere, hostPort)
		if len(reached) == 0 || without && !slices.Equal(reached, []string{"::1"}) {
			t.Errorf("on %s only %v are heard", hostPort, reached)
		}
	}
	if !set {
		t.Error("the settings are lost")
	}
	if without {
		// It comes later. Package net does not look again.
		if output, err := exec.Command("ip", "address", "add", "127.0.0.1/8", "dev", "lo").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if reached := reach(t, everywhere, ":0"); len(reached) != 2 {
			t.Errorf("with 127.0.0.1 only %v are heard", reached)
		}
	}
}

// reach listens on a host:port, and returns the loopback addresses on which it is heard.
func reach(t *testing.T, config net.ListenConfig, hostPort string) (reached []string) {
	t.Helper()
	listener, err := address.ListenWith(t.Context(), config, hostPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		if conn, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
			reached = append(reached, host)
			_ = conn.Close()
		}
	}
	return reached
}
