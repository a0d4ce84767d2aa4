package nodeapi_test

import (
	"net"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/nodeapi"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestAddressThatIsTaken: a server that may listen later answers on the socket, says why it does not over TCP, and does as soon as it can.
func TestAddressThatIsTaken(t *testing.T) {
	a := serve(t)
	a.stop()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := a.config()
	config.Listen, config.AwaitFree = taken.Addr().String(), true
	a.runWith(config)
	problem, _ := a.server.Problem().Get()
	for _, part := range []string{config.Listen, "address already in use", "network.api_listen"} {
		if !strings.Contains(problem, part) {
			t.Errorf("the problem %q does not say %q", problem, part)
		}
	}
	if a.server.Address() != "" {
		t.Errorf("it says that it listens at %s", a.server.Address())
	}
	if _, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("on the socket: %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.server.Problem().Wait(a.context(), func(now string) bool { return now == "" }); err != nil {
		t.Fatal(err)
	}
	if a.server.Address() != config.Listen {
		t.Errorf("it listens at %q", a.server.Address())
	}
	if _, err := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner))).GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("over TCP: %v", err)
	}
}

// TestEndWithoutItsAddress: such a server ends, whether it has its address or not, and what it will never have is an error.
func TestEndWithoutItsAddress(t *testing.T) {
	a := serve(t)
	address := a.server.Address()
	config := a.config()
	config.Socket, config.Listen, config.AwaitFree = listen(t, a.socket+"2"), address, true
	second, err := nodeapi.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	a.stop()
	config = a.config()
	config.Listen, config.AwaitFree = "127.0.0.1:nonsense", true
	if server, err := nodeapi.New(config); err == nil || !strings.Contains(err.Error(), "network.api_listen") {
		t.Errorf("%v, %v", server, err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config.Listen = taken.Addr().String()
	a.runWith(config)
	if _, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
	a.stop()
}
