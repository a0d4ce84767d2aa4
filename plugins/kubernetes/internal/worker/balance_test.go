package worker

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// named is a server that says its name to whoever connects, and then what it is told.
func named(t *testing.T, name string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = conn.Write([]byte(name + "\n"))
				_, _ = bufio.NewReader(conn).WriteTo(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// absent is an address at which nobody listens, and that nobody else can get while the test runs.
func absent(t *testing.T) string {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*unix.SockaddrInet4).Port))
}

func startBalancer(t *testing.T, servers ...string) *balancer {
	t.Helper()
	b, err := newBalancer("127.0.0.1:0", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	b.set(servers)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return b
}

// ask connects, and returns the connection and the name of the server at its other end.
func ask(t *testing.T, b *balancer) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", b.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	reader := bufio.NewReader(conn)
	name, err := reader.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return conn, reader, strings.TrimSpace(name)
}

func TestBalancerGoesThroughToAny(t *testing.T) {
	one := named(t, "one")
	two := named(t, "two")
	b := startBalancer(t, one, two)
	var seen []string
	for range 4 {
		conn, reader, name := ask(t, b)
		seen = append(seen, name)
		if _, err := conn.Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		if echo, err := reader.ReadString('\n'); err != nil || echo != "hello\n" {
			t.Fatalf("%q, %v", echo, err)
		}
	}
	if !slices.Contains(seen, "one") || !slices.Contains(seen, "two") {
		t.Errorf("connections went to %v", seen)
	}
	b.set([]string{one, absent(t)})
	for range 4 {
		if _, _, name := ask(t, b); name != "one" {
			t.Errorf("a connection went to %s, which is no server any more", name)
		}
	}
}

func TestBalancerLeavesWhatIsNoServerAnyMore(t *testing.T) {
	one := named(t, "one")
	two := named(t, "two")
	b := startBalancer(t, one)
	_, reader, _ := ask(t, b)
	b.set(nil)
	if conn, err := net.DialTimeout("tcp", b.listener.Addr().String(), time.Second); err == nil {
		_ = conn.Close()
	}
	b.set([]string{two})
	if _, err := reader.ReadString('\n'); err == nil {
		t.Error("the connection to the former server is still open")
	}
	if _, _, name := ask(t, b); name != "two" {
		t.Errorf("a connection went to %s", name)
	}
}

// TestBalancerWaitsForAServer: what connects before the directory is known is served when it is.
func TestBalancerWaitsForAServer(t *testing.T) {
	one := named(t, "one")
	b := startBalancer(t)
	conn, err := net.Dial("tcp", b.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.set([]string{one})
	if name, err := bufio.NewReader(conn).ReadString('\n'); err != nil || name != "one\n" {
		t.Errorf("%q, %v", name, err)
	}
}
