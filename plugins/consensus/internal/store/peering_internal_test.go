package store

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// TestBindBesideAnotherNode has another node of the machine have the port on an address of its own: the member takes its own address, and moves with that.
func TestBindBesideAnotherNode(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, port, err := net.SplitHostPort(other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p := &peering{outgoing: peers.NewOutgoing(peers.OutgoingConfig{}), cancel: func() {}}
	defer p.stop()
	for _, listen := range []string{":" + port, "0.0.0.0:" + port} {
		for _, host := range []string{"127.0.0.3", "127.0.0.4"} {
			if err := p.take(Place{Listen: listen, Host: host}); err != nil || p.bound.Addr().String() != net.JoinHostPort(host, port) {
				t.Fatalf("%s: listens at %v: %v", listen, p.bound, err)
			}
		}
	}
	for _, taken := range []Place{{Listen: ":" + port, Host: "127.0.0.2"}, {Listen: "127.0.0.2:" + port, Host: "127.0.0.5"}} {
		if err := p.take(taken); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%+v, which is taken: %v", taken, err)
		}
	}
	if err := p.take(Place{Listen: ":0", Host: "127.0.0.5"}); err != nil || p.alone || !p.bound.Addr().(*net.TCPAddr).IP.IsUnspecified() {
		t.Errorf("a port that nobody has: listens at %v: %v", p.bound, err)
	}
}
