//go:build soak

package role_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/reeveproject/reeve/sdk/roletest"
)

// One that is slow to prove itself is not closed for those of a host that floods the listener. All of it has to fit into the
// time of a handshake.
func TestFloodOfAnotherHost(t *testing.T) {
	cluster := roletest.NewCluster(t, 1)
	server := cluster.Host(0).Instance(t, "lighthouse")
	listener := listen(t, server)
	echo(t, listener)
	address := awaitEndpoint(t, server, cluster.Host(0).NodeID(), "lighthouse", "wire")
	from := func(host string) net.Conn {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	slow := from("127.0.0.9")
	for range 400 {
		from("127.0.0.10")
	}
	mustEcho(t, dial(t, server, "lighthouse", "", "")) // all of them have been taken in
	conn := tls.Client(slow, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{given(t, server)}})
	mustEcho(t, conn)
}
