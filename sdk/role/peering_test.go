package role_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// soon is how long the tests wait for what should take milliseconds: it ends a test that hangs.
const soon = time.Minute

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// listen has an instance listen at "wire", and returns when the cluster knows.
func listen(t *testing.T, host *role.Host, options ...role.ListenOption) *role.Listener {
	t.Helper()
	listener, err := host.Listen(within(t, soon), "wire", options...)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// echo sends back what comes, on every connection.
func echo(t *testing.T, listener net.Listener) {
	t.Helper()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn) // until the client ends
			}()
		}
	}()
}

// dial dials until the directory has what is asked for, and the listener's node has heard of the one that dials: the listener waits a second for that.
func dial(t *testing.T, host *role.Host, name, node, endpoint string) net.Conn {
	t.Helper()
	ctx := within(t, soon)
	for {
		conn, err := host.Dial(ctx, name, node, endpoint)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		unheard := strings.Contains(err.Error(), "as the listener's node knows it")
		if !errors.Is(err, role.ErrNoInstance) && !unheard || ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func mustEcho(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := echoes(conn); err != nil {
		t.Errorf("the connection does not work: %v", err)
	}
}

func echoes(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(soon))
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != "hello" {
		return errors.New("it sends back " + string(got))
	}
	return nil
}

// mustEnd waits until a connection ends.
func mustEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	_, err := conn.Read(make([]byte, 1))
	if err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection goes on: %v", err)
	}
}

func TestListenAndDial(t *testing.T) {
	cluster := roletest.NewCluster(t, 3)
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	conn := dial(t, client, "lighthouse", cluster.Host(0).NodeID(), "wire")
	mustEcho(t, conn)
	if peer, ok := role.PeerOf(conn); !ok || peer != (role.Peer{NodeID: cluster.Host(0).NodeID(), Role: "lighthouse"}) {
		t.Errorf("the peer is %v", peer)
	}
	mustEcho(t, dial(t, client, "lighthouse", "", ""))
	mustEcho(t, dial(t, server, "lighthouse", "", "wire")) // to itself
}

// TestFullListenerLetsNobodyIn does not tell a peer that it is let in for which there is no room.
func TestFullListenerLetsNobodyIn(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	listener := listen(t, server)
	const room = 256
	for range room {
		dial(t, client, "lighthouse", cluster.Host(0).NodeID(), "wire")
	}
	conn, err := client.Dial(within(t, soon), "lighthouse", cluster.Host(0).NodeID(), "wire")
	if err == nil {
		_ = conn.Close()
		t.Fatal("the peer was told that it is let in")
	}
	if !errors.Is(err, role.ErrNotReachable) || errors.Is(err, role.ErrNotAuthorised) {
		t.Errorf("why it is not let in: %v", err)
	}
	// There is room for the next one as soon as one was taken.
	taken, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = taken.Close()
	for ctx := within(t, soon); ; time.Sleep(10 * time.Millisecond) {
		if conn, err = client.Dial(ctx, "lighthouse", cluster.Host(0).NodeID(), "wire"); err == nil {
			_ = conn.Close()
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
