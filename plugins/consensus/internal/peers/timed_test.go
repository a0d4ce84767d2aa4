package peers_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/plugins/consensus/internal/peers"
)

// TestKernelsLimits: the kernel ends each connection by itself whose other machine takes nothing: those that were made and those that were accepted.
func TestKernelsLimits(t *testing.T) {
	pair := credentialed(t, peers.Name{Cluster: "cluster-a", Node: "reeve-1", Member: 0xab}, peers.Name{Cluster: "cluster-a", Node: "reeve-2", Member: 0xac})
	bound, err := peers.Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(bound.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	listener := peers.Serve(hclog.NewNullLogger(), bound, always(pair[0]), open{}, http.NotFoundHandler())
	t.Cleanup(listener.Close)
	for _, elsewhere := range []func() []string{nil, func() []string { return []string{"127.0.0.1"} }} {
		outgoing := peers.NewOutgoing(peers.OutgoingConfig{
			Log: hclog.NewNullLogger(), Places: &places{at: []uint64{0xab}}, DialTimeout: patience, Credentials: always(pair[1]), Elsewhere: elsewhere, Now: time.Now,
		})
		t.Cleanup(outgoing.Close)
		host := "127.0.0.1"
		if elsewhere != nil {
			host = "127.0.0.2"
		}
		for _, c := range []struct {
			through http.RoundTripper
			want    time.Duration
		}{{outgoing.Streams(), 5 * time.Second}, {outgoing.Messages(), 20 * time.Second}} {
			made, err := c.through.(*http.Transport).DialTLSContext(t.Context(), "tcp", net.JoinHostPort(host, port))
			if err != nil {
				t.Fatal(err)
			}
			if got := outgoing.Untaken(); !slices.Equal(got, []time.Duration{c.want}) {
				t.Errorf("of what was made: %v, want %v", got, c.want)
			}
			if got := listener.Untaken(); len(got) == 0 || slices.ContainsFunc(got, func(of time.Duration) bool { return of != 5*time.Second }) {
				t.Errorf("of what was accepted: %v", got)
			}
			_ = made.Close()
		}
	}
}

// TestUntakenRequestEnds: a request that the other member does not read ends, although nobody waits for a sign of life there.
func TestUntakenRequestEnds(t *testing.T) {
	t.Parallel()
	outgoing, _, address := reaching(t, make(chan struct{}))
	made, err := outgoing.Within(time.Second).DialTLSContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	_, err = fmt.Fprintf(made, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", address, int64(1)<<50)
	for block := make([]byte, 1<<20); err == nil; {
		_, err = made.Write(block)
	}
	if !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("it ended with %v", err)
	}
}
