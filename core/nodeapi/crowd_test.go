package nodeapi_test

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/nodeapi"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// Whoever reaches the port can open connections and say nothing. The core holds few of them, and goes on answering those who prove who they are.
func TestStrangersDoNotFillTheCore(t *testing.T) {
	nodeapi.WaitsForEver(t)
	a := serve(t)
	const many = 300
	var opened []net.Conn
	for range many {
		conn, err := net.Dial("tcp", a.server.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		opened = append(opened, conn)
	}
	if _, err := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner))).GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("the owner is not answered: %v", err)
	}
	// Most of them are closed, though none has taken longer than a handshake may.
	for i, conn := range opened[:many-64] {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Fatalf("connection %d of %d is still there: %v", i, many, err)
		}
	}
}

// Nor do they keep it from stopping for as long as a handshake may take.
func TestStrangersDoNotHoldUpTheEnd(t *testing.T) {
	nodeapi.WaitsForEver(t)
	a := serve(t)
	conn, err := net.Dial("tcp", a.server.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The server accepts one after the other: it has this one when the next is answered.
	if _, err := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner))).GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	a.stop()
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// One client, which may have been revoked, does not take all connections from the others, and has its places again once it leaves them.
func TestConnectionsOfOneClientAreBounded(t *testing.T) {
	a := serve(t)
	a.everybody()
	ask := func(conn *grpc.ClientConn, options ...grpc.CallOption) error {
		_, err := nodev1.NewNodeServiceClient(conn).GetStatus(a.context(), &nodev1.GetStatusRequest{}, options...)
		return err
	}
	var conns []*grpc.ClientConn
	for range 32 {
		// Another certificate each time, as after each login.
		conn := a.remote(a.operator("mallory", oldID))
		if err := ask(conn); status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if err := ask(a.remote(a.operator("mallory", oldID))); status.Code(err) != codes.Unavailable {
		t.Errorf("one connection more: %v", err)
	}
	if err := ask(a.remote(a.operator("alice", aliceID))); err != nil {
		t.Errorf("another operator: %v", err)
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	// The server may not have heard of it yet.
	again, ready := a.remote(a.operator("mallory", oldID)), grpc.WaitForReady(true)
	for err := ask(again, ready); status.Code(err) != codes.Unauthenticated; err = ask(again, ready) {
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("after they were closed: %v", err)
		}
	}
}
