package nodeapi_test

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/partialtest"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// connects connects as the holder of a certificate.
func (a *api) connects(certificate *tls.Certificate) *tls.Conn {
	a.t.Helper()
	// That of the server is looked at in other tests.
	conn, err := tls.Dial("tcp", a.server.Address(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*certificate}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		a.t.Fatal(err)
	}
	return conn
}

// TestRequestsWithoutAnEnd: a client that sends parts of requests has 16 MiB of them on all of its connections, and loses the one on which it sends more. So does one that was revoked. Others are answered.
func TestRequestsWithoutAnEnd(t *testing.T) {
	a := serve(t)
	a.everybody()
	const request = 1 << 20
	begin := func(certificate *tls.Certificate, calls int) error {
		t.Helper()
		return partialtest.Calls(a.connects(certificate), nodev1.NodeService_GetMetrics_FullMethodName, calls, request, request-1)
	}
	for name, certificate := range map[string]*tls.Certificate{"a viewer": a.operator("bob", bobID), "one who was revoked": a.operator("mallory", oldID)} {
		if err := begin(certificate, 10); err != nil {
			t.Errorf("%s, within the bound: %v", name, err)
		}
		if err := begin(certificate, 7); err == nil {
			t.Errorf("%s holds 17 MiB of requests that are not complete", name)
		}
	}
	if err := begin(a.operator("alice", aliceID), 15); err != nil {
		t.Errorf("another operator: %v", err)
	}
	if _, err := nodev1.NewNodeServiceClient(a.remote(a.operator("bob", bobID))).GetStatus(a.context(), &nodev1.GetStatusRequest{}); err != nil {
		t.Errorf("the viewer, on another connection: %v", err)
	}
}

// TestNothingIsCompressed: a compressed request is refused, although this program is linked with a compressor.
func TestNothingIsCompressed(t *testing.T) {
	a := serve(t)
	for name, conn := range map[string]*grpc.ClientConn{"over TCP": a.remote(selfSigned(t, a.owner)), "locally": a.local()} {
		request := &nodev1.ReadLogRequest{Role: strings.Repeat("x", 1000)}
		stream, err := nodev1.NewNodeServiceClient(conn).ReadLog(a.context(), request, grpc.UseCompressor(gzip.Name))
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil || !strings.Contains(err.Error(), "no compressed requests") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMetricsAreForAll: a client does not have all others wait for the metrics, of which one answer is made at a time.
func TestMetricsAreForAll(t *testing.T) {
	a := serve(t)
	a.stop()
	config := a.config()
	begun, end := make(chan struct{}, 100), make(chan struct{})
	config.Metrics = func(context.Context) ([]byte, error) {
		begun <- struct{}{}
		<-end
		return nil, nil
	}
	a.runWith(config)
	a.everybody()
	ask := func(name, id string) error {
		_, err := nodev1.NewNodeServiceClient(a.remote(a.operator(name, id))).GetMetrics(a.context(), &nodev1.GetMetricsRequest{})
		return err
	}
	answered := make(chan error, 5)
	for range 4 {
		go func() { answered <- ask("bob", bobID) }()
		<-begun
	}
	if err := ask("bob", bobID); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call more: %v", err)
	}
	go func() { answered <- ask("alice", aliceID) }()
	<-begun
	close(end)
	for range cap(answered) {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	if err := ask("bob", bobID); err != nil {
		t.Errorf("when all were answered: %v", err)
	}
}
