package address_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
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
	listener, err := address.ListenWith(t.Context(), net.ListenConfig{Control: func(string, string, syscall.RawConn) error {
		set = true
		return nil
	}}, ":0")
	if err != nil {
		t.Fatal(err)
	}
	if !set {
		t.Error("the settings are lost")
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var problems []string
	reached := 0
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		reached++
		_ = conn.Close()
	}
	if without := os.Getenv(withoutLoopback) != ""; reached == 0 || without && reached != 1 {
		t.Errorf("on %s: %s", listener.Addr(), strings.Join(problems, "; "))
	}
}
