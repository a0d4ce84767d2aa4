package hostapi_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/reeveproject/reeve/core/hostapi"
	"github.com/reeveproject/reeve/core/membership"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// TestAdopted: a host socket comes back at its path under another core, and the role that lost its stream there is served again.
func TestAdopted(t *testing.T) {
	n := newNode(t, nil)
	n.membership.Set(membership.Status{State: membership.Split})
	socket := n.open(remitOf("role.1"))
	n.open(remitOf("other.1"))
	conn := connect(t, socket)
	client := hostv1.NewHostServiceClient(conn)
	stream, err := client.WatchMembership(within(t), &hostv1.WatchMembershipRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	before, mode := modeAndOwner(t, filepath.Dir(socket)), modeAndOwner(t, socket)
	n.server.Leave()
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream goes on without a core")
	}
	if _, err := os.Stat(socket); err != nil {
		t.Error(err)
	}
	config := n.config()
	config.Adopted = []string{"role.1"}
	next, err := hostapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	mustHaveOnly(t, filepath.Join(n.runDir, "host"), "role.1")
	path, closeSocket, err := next.Open(remitOf("role.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeSocket()
	if path != socket || modeAndOwner(t, filepath.Dir(socket)) != before || modeAndOwner(t, socket) != mode {
		t.Errorf("it is %s, %s in %s, and was %s in %s", path, modeAndOwner(t, socket), modeAndOwner(t, filepath.Dir(socket)), mode, before)
	}
	ctx := within(t)
	for conn.GetState() != connectivity.Ready {
		conn.Connect()
		time.Sleep(time.Millisecond)
		if ctx.Err() != nil {
			t.Fatal("the role does not find its host again")
		}
	}
	if stream, err = client.WatchMembership(ctx, &hostv1.WatchMembershipRequest{}); err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Error(err)
	}
	closeSocket()
	mustHaveOnly(t, filepath.Join(n.runDir, "host"))
}
