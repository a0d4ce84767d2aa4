package nodeapi_test

import (
	"bytes"
	"context"
	"math"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// unread is a connection on which little more is read than what is received.
func (a *api) unread(name, id string) *grpc.ClientConn {
	return a.remote(a.operator(name, id), grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
}

// fill has an operator make calls that last, until there is no room for another one.
func (a *api) fill(name, id string) {
	a.t.Helper()
	refused := make(chan error, 1)
	for range 10 {
		client := nodev1.NewNodeServiceClient(a.remote(a.operator(name, id)))
		for range 40 {
			stream, err := client.WatchEvents(a.context(), &nodev1.WatchEventsRequest{After: math.MaxUint64, Follow: true})
			if err != nil {
				a.t.Fatal(err)
			}
			go func() {
				_, err := stream.Recv()
				select {
				case refused <- err:
				default:
				}
			}()
		}
	}
	if err := <-refused; status.Code(err) != codes.ResourceExhausted {
		a.t.Errorf("the first of the calls to end: %v", err)
	}
}

// TestUnreadAnswersAreBounded: a client that reads no answers is given only so many, on all of its connections, of calls and of streams. Others are answered, and so is it when its connections are closed.
func TestUnreadAnswersAreBounded(t *testing.T) {
	a := serve(t)
	a.stop()
	config := a.config()
	large := bytes.Repeat([]byte("x"), 3<<20)
	config.Metrics = func(context.Context) ([]byte, error) { return large, nil }
	a.runWith(config)
	a.everybody()
	ask := func(conn *grpc.ClientConn) error {
		_, err := nodev1.NewNodeServiceClient(conn).GetMetrics(a.context(), &nodev1.GetMetricsRequest{})
		return err
	}
	var conns []*grpc.ClientConn
	// A call as a stream, whose answer waits until it is received.
	begun := 0
	for range 4 {
		conn := a.unread("bob", bobID)
		conns = append(conns, conn)
		for range 4 {
			call, err := conn.NewStream(a.context(), &grpc.StreamDesc{ServerStreams: true}, nodev1.NodeService_GetMetrics_FullMethodName)
			if err == nil {
				err = call.SendMsg(&nodev1.GetMetricsRequest{})
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := call.CloseSend(); err != nil {
				t.Fatal(err)
			}
			// An answer begins with headers; a refusal has none.
			if header, err := call.Header(); err == nil && len(header) > 0 {
				begun++
			}
		}
	}
	if begun != 10 {
		t.Errorf("%d answers of 3 MiB wait for a client that reads none of them, and 32 MiB may", begun)
	}
	if err := ask(a.remote(a.operator("bob", bobID))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	a.fill("bob", bobID)
	// What is forbidden is recorded all the same.
	if _, err := nodev1.NewNodeServiceClient(a.remote(a.operator("bob", bobID))).RestartRole(a.context(), &nodev1.RestartRoleRequest{Role: "lighthouse"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a call that is forbidden: %v", err)
	}
	if !slices.ContainsFunc(a.calls(0), func(e *nodev1.Event) bool { return e.GetDetails()["rpc"] == "RestartRole" }) {
		t.Error("a call that is forbidden leaves no trace")
	}
	if err := ask(a.remote(a.operator("alice", aliceID))); err != nil {
		t.Errorf("another operator: %v", err)
	}
	if err := ask(a.local()); err != nil {
		t.Errorf("on the local socket: %v", err)
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	// The server may not have heard of it yet. What is read is counted no more: the answers together are more than may wait.
	again := a.remote(a.operator("bob", bobID))
	for read := 0; read < 15; {
		switch err := ask(again); status.Code(err) {
		case codes.OK:
			read++
		case codes.ResourceExhausted:
			if read > 0 {
				t.Fatalf("after %d answers that were read: %v", read, err)
			}
		default:
			t.Fatal(err)
		}
	}
}

// TestUnreadStreamsAreBounded: what a stream sends counts too.
func TestUnreadStreamsAreBounded(t *testing.T) {
	a := serve(t)
	a.everybody()
	a.status.Set(&nodev1.Status{NodeId: string(bytes.Repeat([]byte("x"), 3<<20))})
	conn := a.unread("bob", bobID)
	begun := 0
	for range 12 {
		stream, err := nodev1.NewNodeServiceClient(conn).WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if header, err := stream.Header(); err == nil && len(header) > 0 {
			begun++
		} else if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a stream ends with %v", err)
		}
	}
	if begun != 10 {
		t.Errorf("%d statuses of 3 MiB wait for a client that reads none of them, and 32 MiB may", begun)
	}
}
