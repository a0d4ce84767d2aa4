package role

import (
	"net"
	"slices"
	"testing"
)

// connection is one from an address, on which nothing is sent.
type connection struct {
	net.Conn
	from string
}

func (c connection) RemoteAddr() net.Addr {
	address, _ := net.ResolveTCPAddr("tcp", c.from)
	return address
}

func (connection) Close() error { return nil }

func TestTheOldestOfTheBusiestHostGoes(t *testing.T) {
	var u unproven
	enter := func(from string) (entered, former *unprovenPeer) { return u.enter(t.Context(), connection{from: from}) }
	slow, _ := enter("192.0.2.9:1")
	first, _ := enter("192.0.2.10:1")
	for range maxHandshakes - 2 {
		if _, former := enter("192.0.2.10:1"); former != nil {
			t.Fatal("one had to go before there was no room")
		}
	}
	if _, former := enter("192.0.2.11:1"); former != first {
		t.Error("not the oldest one of the busiest host went")
	}
	if !slices.Contains(u.peers, slow) {
		t.Error("another host's went")
	}
	if u.leave(first) {
		t.Error("the one that went is still inside when it leaves")
	}
	if !u.leave(slow) || u.leave(slow) || slow.ctx.Err() == nil {
		t.Error("the one that stayed does not leave once")
	}
}
