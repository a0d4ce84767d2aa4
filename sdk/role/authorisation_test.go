package role_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// mustNotDial checks that a dial fails for a reason, and says some things of it.
func mustNotDial(t *testing.T, host *role.Host, name, node, endpoint string, reason error, parts ...string) {
	t.Helper()
	conn, err := host.Dial(within(t, soon), name, node, endpoint)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, reason) {
		t.Errorf("dialling %s on %q, endpoint %q: want %v, got: %v", name, node, endpoint, reason, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not speak of %q: %v", part, err)
		}
	}
}

// awaitEndpoint waits until the directory, as an instance knows it, has an endpoint.
func awaitEndpoint(t *testing.T, host *role.Host, node, name, endpoint string) (address string) {
	t.Helper()
	_, err := host.Directory().Wait(within(t, soon), func(now *hostv1.Directory) bool {
		address = endpointIn(now, node, name, endpoint)
		return address != ""
	})
	if err != nil {
		t.Fatalf("the directory does not come to have the endpoint %s of %s on %s", endpoint, name, node)
	}
	return address
}

// awaitAssigned waits until the directory, as an instance knows it, has a role assigned to a node.
func awaitAssigned(t *testing.T, host *role.Host, node, name string) {
	t.Helper()
	if _, err := host.Directory().Wait(within(t, soon), func(now *hostv1.Directory) bool {
		return slices.ContainsFunc(now.GetNodes(), func(n *hostv1.DirectoryNode) bool {
			return n.GetNodeId() == node && slices.Contains(n.GetAssigned().GetRoles(), name)
		})
	}); err != nil {
		t.Fatalf("the role %s does not come to be assigned to the node %s", name, node)
	}
}

// awaitWithout waits until the directory, as an instance knows it, does not have a node.
func awaitWithout(t *testing.T, host *role.Host, node string) {
	t.Helper()
	if _, err := host.Directory().Wait(within(t, soon), func(now *hostv1.Directory) bool {
		return !slices.ContainsFunc(now.GetNodes(), func(n *hostv1.DirectoryNode) bool { return n.GetNodeId() == node })
	}); err != nil {
		t.Fatalf("the node %s stays in the directory", node)
	}
}

func endpointIn(directory *hostv1.Directory, node, name, endpoint string) string {
	for _, n := range directory.GetNodes() {
		for _, r := range n.GetRoles() {
			for _, e := range r.GetEndpoints() {
				if n.GetNodeId() == node && r.GetRole() == name && e.GetName() == endpoint {
					return e.GetAddress()
				}
			}
		}
	}
	return ""
}

func TestWrongRole(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	node := cluster.Host(0).NodeID()
	server := cluster.Host(0).Instance(t, "lighthouse")
	own, both := listen(t, server), func() *role.Listener {
		listener, err := server.Listen(within(t, soon), "both", role.AllowRoles("ship", "lighthouse"))
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}()
	echo(t, own)
	echo(t, both)
	ship, pirate, keeper := cluster.Host(1).Instance(t, "ship"), cluster.Host(1).Instance(t, "pirate"), cluster.Host(1).Instance(t, "lighthouse")
	for _, client := range []*role.Host{ship, pirate} {
		awaitEndpoint(t, client, node, "lighthouse", "wire")
		awaitEndpoint(t, client, node, "lighthouse", "both")
	}
	mustNotDial(t, ship, "lighthouse", node, "wire", role.ErrNotAuthorised, "AllowRoles", node)
	mustNotDial(t, pirate, "lighthouse", node, "both", role.ErrNotAuthorised)
	for _, allowed := range []*role.Host{ship, keeper, server} {
		mustEcho(t, dial(t, allowed, "lighthouse", node, "both"))
	}
	mustEcho(t, dial(t, keeper, "lighthouse", node, "wire"))
}

// An instance that claims another one's address as its own is not taken for the one that answers there, nor the other way round.
func TestWrongServer(t *testing.T) {
	cluster := roletest.NewCluster(t, 3)
	listener := listen(t, cluster.Host(0).Instance(t, "lighthouse"), role.AllowRoles("ship"))
	echo(t, listener)
	ship := cluster.Host(2).Instance(t, "ship")
	address := awaitEndpoint(t, ship, cluster.Host(0).NodeID(), "lighthouse", "wire")
	cluster.Host(1).Instance(t, "lighthouse").SetEndpoint("wire", "tcp://"+address)
	cluster.Host(0).Instance(t, "harbour").SetEndpoint("wire", address)
	awaitEndpoint(t, ship, cluster.Host(1).NodeID(), "lighthouse", "wire")
	awaitEndpoint(t, ship, cluster.Host(0).NodeID(), "harbour", "wire")
	mustNotDial(t, ship, "lighthouse", cluster.Host(1).NodeID(), "wire", role.ErrNotAuthorised, "lighthouse on "+cluster.Host(0).NodeID())
	mustNotDial(t, ship, "harbour", "", "", role.ErrNotAuthorised, "lighthouse on "+cluster.Host(0).NodeID())
	// Whoever answers as somebody else does not keep others from an instance that is well.
	for range 10 {
		conn := dial(t, ship, "lighthouse", "", "")
		if peer, _ := role.PeerOf(conn); peer.NodeID != cluster.Host(0).NodeID() {
			t.Errorf("connected to %v", peer)
		}
	}
}

func TestOtherTrustDomain(t *testing.T) {
	cluster, other := roletest.NewCluster(t, 1), roletest.NewCluster(t, 1)
	server := cluster.Host(0).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	address := awaitEndpoint(t, server, cluster.Host(0).NodeID(), "lighthouse", "wire")
	stranger := other.Host(0).Instance(t, "lighthouse")
	stranger.SetEndpoint("wire", address)
	awaitEndpoint(t, stranger, other.Host(0).NodeID(), "lighthouse", "wire")
	mustNotDial(t, stranger, "lighthouse", "", "", role.ErrNotAuthorised, "certificate")
}

// raw connects as something that was not written with this package, and reports why it did not get as far as to be let in.
func raw(t *testing.T, address string, certificates ...tls.Certificate) error {
	t.Helper()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}).DialContext(within(t, soon), "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return echoes(conn)
}

// given has an SVID issued for an instance, and returns it with its key.
func given(t *testing.T, host *role.Host) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	response, err := host.Client().IssueSVID(within(t, soon), &hostv1.IssueSVIDRequest{CertificateRequest: csr})
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: response.GetSvid(), PrivateKey: key}
}

// What a listener lets in is decided by the certificate alone, whatever the client was written with.
func TestForeignClients(t *testing.T) {
	cluster, other := roletest.NewCluster(t, 2), roletest.NewCluster(t, 1)
	server := cluster.Host(0).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	address := awaitEndpoint(t, server, cluster.Host(0).NodeID(), "lighthouse", "wire")
	keeper := cluster.Host(1).Instance(t, "lighthouse")
	awaitAssigned(t, server, cluster.Host(1).NodeID(), "lighthouse")
	good := given(t, keeper)
	if err := raw(t, address, good); err != nil {
		t.Errorf("with an SVID: %v", err)
	}
	cluster.Authority().SetLifetime(-2 * time.Second)
	expired := given(t, keeper)
	cluster.Authority().SetLifetime(time.Hour)
	for name, certificates := range map[string][]tls.Certificate{
		"none":                  nil,
		"expired":               {expired},
		"of another cluster":    {given(t, other.Host(0).Instance(t, "lighthouse"))},
		"of a role not allowed": {given(t, cluster.Host(1).Instance(t, "ship"))},
	} {
		if err := raw(t, address, certificates...); err == nil {
			t.Errorf("a client with a certificate %s is let in", name)
		}
	}
	cluster.Remove(cluster.Host(1))
	awaitWithout(t, server, cluster.Host(1).NodeID())
	if err := raw(t, address, good); err == nil {
		t.Error("a client of a node that was removed is let in")
	}
	if err := raw(t, address, given(t, server)); err != nil {
		t.Errorf("with an SVID, at the end: %v", err)
	}
}

// Peers that do not prove themselves keep nobody else out, however many they are: the oldest of those of one host go for new ones.
func TestSilentPeers(t *testing.T) {
	cluster := roletest.NewCluster(t, 1)
	server := cluster.Host(0).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	address, good := awaitEndpoint(t, server, cluster.Host(0).NodeID(), "lighthouse", "wire"), given(t, server)
	for {
		began := time.Now()
		last := beSilent(t, address, 600)
		mustEcho(t, dial(t, server, "lighthouse", "", ""))
		// The last one, on which nothing was written, was not closed for others. It is for being late, on a busy machine.
		err := echoes(tls.Client(last, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{good}}))
		if err == nil {
			return
		}
		if took := time.Since(began); took < role.HandshakeTime {
			t.Fatalf("the last silent peer is not let in after %s: %v", took, err)
		}
	}
}

// beSilent makes connections on which at most the beginning of a hello is sent, and returns the last one, on which nothing is.
func beSilent(t *testing.T, address string, many int) (last net.Conn) {
	t.Helper()
	for n := range many {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if n%2 == 0 {
			_, _ = conn.Write([]byte("\x16\x03\x01\x00\xff")) // the beginning of a hello
		}
		last = conn
	}
	return last
}

// A role that is taken from a node is cut off at once, at either end, although the node stays, its SVID is good and its process goes on.
func TestRoleThatIsWithdrawn(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	stays, leaves, other := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "ship")
	here, there := listen(t, stays, role.AllowRoles("lighthouse", "ship")), listen(t, leaves)
	echo(t, here)
	echo(t, there)
	from, to := dial(t, leaves, "lighthouse", cluster.Host(0).NodeID(), ""), dial(t, stays, "lighthouse", cluster.Host(1).NodeID(), "")
	unconcerned := dial(t, other, "lighthouse", cluster.Host(0).NodeID(), "")
	for _, conn := range []net.Conn{from, to, unconcerned} {
		mustEcho(t, conn)
	}
	cluster.Withdraw(cluster.Host(1), "lighthouse")
	mustEnd(t, from)
	mustEnd(t, to)
	mustEcho(t, unconcerned)
	mustNotDial(t, leaves, "lighthouse", cluster.Host(0).NodeID(), "", role.ErrNotAuthorised, "this role is not assigned to this node")
}

// Removed: open connections of the node end at once, at either end, and there are no new ones.
func TestNodeThatLeaves(t *testing.T) {
	cluster := roletest.NewCluster(t, 3)
	stays, leaves, third := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse"), cluster.Host(2).Instance(t, "lighthouse")
	here, there := listen(t, stays), listen(t, leaves)
	echo(t, here)
	echo(t, there)
	from, to := dial(t, leaves, "lighthouse", cluster.Host(0).NodeID(), ""), dial(t, stays, "lighthouse", cluster.Host(1).NodeID(), "")
	unconcerned := dial(t, third, "lighthouse", cluster.Host(0).NodeID(), "")
	for _, conn := range []net.Conn{from, to, unconcerned} {
		mustEcho(t, conn)
	}
	cluster.Remove(cluster.Host(1))
	mustEnd(t, from)
	mustEnd(t, to)
	mustEcho(t, unconcerned)
	awaitWithout(t, stays, cluster.Host(1).NodeID())
	mustNotDial(t, stays, "lighthouse", cluster.Host(1).NodeID(), "", role.ErrNoInstance, "no such node")
	mustNotDial(t, leaves, "lighthouse", cluster.Host(0).NodeID(), "", role.ErrNotAuthorised, "directory")
}

// nobodyListens returns an address that nobody can listen at while the test runs.
func nobodyListens(t *testing.T) string {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}

func TestWhatTheDirectoryDoesNotHave(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "ship")
	node := cluster.Host(0).NodeID()
	mustNotDial(t, client, "nonesuch", "", "", role.ErrNoInstance, "nonesuch", "no node runs the role")
	mustNotDial(t, client, "lighthouse", "reeve-ff", "", role.ErrNoInstance, "no such node")
	if _, err := client.Directory().Wait(within(t, soon), func(now *hostv1.Directory) bool { return len(now.GetNodes()[0].GetRoles()) == 1 }); err != nil {
		t.Fatal(err)
	}
	mustNotDial(t, client, "lighthouse", node, "", role.ErrNoInstance, "serves nothing yet")
	closed := nobodyListens(t)
	server.SetEndpoint("away", closed)
	server.SetEndpoint("odd", "unix:///somewhere")
	awaitEndpoint(t, client, node, "lighthouse", "odd")
	mustNotDial(t, client, "lighthouse", node, "", role.ErrNoInstance, "several", "away, odd")
	mustNotDial(t, client, "lighthouse", node, "light", role.ErrNoInstance, "does not serve that endpoint", "away, odd")
	mustNotDial(t, client, "lighthouse", node, "odd", role.ErrNoInstance, "unix:///somewhere")
	mustNotDial(t, client, "lighthouse", node, "away", role.ErrNotReachable, closed, "refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := roletest.NewHost(t).Instance(t, "ship").Dial(ctx, "lighthouse", "", "")
	if !errors.Is(err, role.ErrNoInstance) || !errors.Is(err, context.Canceled) {
		t.Errorf("without a directory: %v", err)
	}
}

// One that does not speak TLS is not reachable, and does not hold the caller up beyond its time.
func TestServerThatIsSilent(t *testing.T) {
	cluster := roletest.NewCluster(t, 1)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	host := cluster.Host(0).Instance(t, "lighthouse")
	host.SetEndpoint("wire", silent.Addr().String())
	awaitEndpoint(t, host, cluster.Host(0).NodeID(), "lighthouse", "wire")
	mustEcho(t, func() net.Conn {
		listener, err := host.Listen(within(t, soon), "well")
		if err != nil {
			t.Fatal(err)
		}
		echo(t, listener)
		return dial(t, host, "lighthouse", "", "well")
	}())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	verifiedBy := make(chan error, 1)
	go func() {
		defer cancel()
		conn, err := silent.Accept()
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			context.AfterFunc(t.Context(), func() { _ = conn.Close() })
		}
		verifiedBy <- err
	}()
	_, err = host.Dial(ctx, "lighthouse", "", "wire")
	if !errors.Is(err, role.ErrNotReachable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got: %v", err)
	}
	_ = silent.Close()
	if err := <-verifiedBy; err != nil {
		t.Errorf("the caller did not speak first: %v", err)
	}
}

func TestListenerCloses(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	conn := dial(t, client, "lighthouse", "", "")
	mustEcho(t, conn)
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := client.Directory().Wait(within(t, soon), func(now *hostv1.Directory) bool {
		return endpointIn(now, cluster.Host(0).NodeID(), "lighthouse", "wire") == ""
	}); err != nil {
		t.Error("the endpoint stays")
	}
	mustEcho(t, conn) // what was accepted goes on
	if err := listener.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestListenOptions(t *testing.T) {
	cluster := roletest.NewCluster(t, 1)
	host := cluster.Host(0).Instance(t, "lighthouse")
	if _, err := host.Listen(within(t, soon), "two\nlines"); err == nil || !strings.Contains(err.Error(), "endpoint") {
		t.Errorf("a name that is none: %v", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	if _, err := host.Listen(within(t, soon), "wire", role.ListenOn(taken.Addr().String())); err == nil || !strings.Contains(err.Error(), "wire") {
		t.Errorf("an address that is taken: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := roletest.NewHost(t).Instance(t, "lighthouse").Listen(ctx, "wire"); !errors.Is(err, context.Canceled) {
		t.Errorf("without an address: %v", err)
	}
	listener, err := host.Listen(within(t, soon), "wire", role.ListenOn("127.0.0.1:0"), role.Protocols("h2"))
	if err != nil {
		t.Fatal(err)
	}
	echo(t, listener)
	conn, err := (&tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{given(t, host)}, NextProtos: []string{"h2"},
	}}).DialContext(within(t, soon), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	mustEcho(t, conn)
	if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "h2" {
		t.Errorf("the protocol is %q", got)
	}
}

// A node whose first address changes is found at the new one.
func TestListenerMoves(t *testing.T) {
	cluster := roletest.NewCluster(t, 2)
	server, client := cluster.Host(0).Instance(t, "lighthouse"), cluster.Host(1).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	before := awaitEndpoint(t, client, cluster.Host(0).NodeID(), "lighthouse", "wire")
	old := dial(t, client, "lighthouse", "", "")
	mustEcho(t, old)
	cluster.Host(0).Network.Set([]string{"192.0.2.1", "127.0.0.77"}) // nobody can listen there
	cluster.Host(0).Network.Set(nil)
	cluster.Host(0).Network.Set([]string{"127.0.0.77"})
	if _, err := client.Directory().Wait(within(t, soon), func(now *hostv1.Directory) bool {
		return strings.HasPrefix(endpointIn(now, cluster.Host(0).NodeID(), "lighthouse", "wire"), "127.0.0.77:")
	}); err != nil {
		t.Fatal("the endpoint does not move")
	}
	mustEcho(t, dial(t, client, "lighthouse", "", ""))
	mustEcho(t, old)
	// The listener says where it is when it has left the former address.
	if !strings.HasPrefix(listener.Addr().String(), "127.0.0.77:") {
		t.Errorf("it says that it is at %s", listener.Addr())
	}
	// Somebody else may listen there by now, but does not let this one in.
	if err := raw(t, before, given(t, client)); err == nil {
		t.Error("the listener is still at the former address")
	}
}

// What is left of the stream is read before its end.
func TestHalfClose(t *testing.T) {
	cluster := roletest.NewCluster(t, 1)
	host := cluster.Host(0).Instance(t, "lighthouse")
	listener := listen(t, host)
	echo(t, listener)
	conn := dial(t, host, "lighthouse", "", "")
	_, _ = conn.Write([]byte("hello"))
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(soon))
	if got, err := io.ReadAll(conn); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
