package peers_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// patience is how long a test waits for what should happen at once.
const patience = 2 * time.Minute

type open struct{}

func (open) Admit(peers.Name) error { return nil }

func always(credentials *peers.Credentials) peers.Source {
	return func() (*peers.Credentials, error) { return credentials, nil }
}

// credentialed are credentials of members of one store.
func credentialed(t *testing.T, names ...peers.Name) []*peers.Credentials {
	t.Helper()
	authority, err := peers.NewAuthority("cluster-a")
	if err != nil {
		t.Fatal(err)
	}
	var all []*peers.Credentials
	for _, name := range names {
		all = append(all, install(t, peers.Files{Directory: t.TempDir()}, authority, name))
	}
	return all
}

// serving is a member that says "here", and credentials of another one.
func serving(t *testing.T, member uint64) (address string, other *peers.Credentials) {
	t.Helper()
	pair := credentialed(t, peers.Name{Cluster: "cluster-a", Node: "reeve-1", Member: member}, peers.Name{Cluster: "cluster-a", Node: "reeve-2", Member: member + 1})
	bound, err := peers.Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := peers.Serve(hclog.NewNullLogger(), bound, always(pair[0]), open{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	t.Cleanup(listener.Close)
	return listener.Addr().String(), pair[1]
}

func get(credentials *peers.Credentials, member uint64, address string) error {
	answer, err := peers.Client(credentials, member, patience).Get(peers.URL(address))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.ReadAll(answer.Body)
	return err
}

// TestClientBelievesOneMember does not take the word of one member for that of another.
func TestClientBelievesOneMember(t *testing.T) {
	address, other := serving(t, 0xab)
	if err := get(other, 0xab, address); err != nil {
		t.Errorf("the member that was asked: %v", err)
	}
	if err := get(other, 0xad, address); err == nil || !strings.Contains(err.Error(), "in place of member ad") {
		t.Errorf("another member than the one that was asked was believed: %v", err)
	}
}

// TestIdleConnectionsShutNobodyOut lets members in while others connect and prove nothing.
func TestIdleConnectionsShutNobodyOut(t *testing.T) {
	address, other := serving(t, 0xab)
	var idle []net.Conn
	for range 200 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	if err := get(other, 0xab, address); err != nil {
		t.Fatalf("a member is shut out: %v", err)
	}
	// The oldest ones had to go.
	if err := idle[0].SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the oldest connection is still there: %v", err)
	}
}

func isTimeout(err error) bool {
	failed, ok := err.(net.Error)
	return ok && failed.Timeout()
}
