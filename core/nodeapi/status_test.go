package nodeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/nodeapi"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func TestTheStatusIsToldAndWatched(t *testing.T) {
	a := serve(t)
	response, err := a.client().GetStatus(a.context(), &nodev1.GetStatusRequest{})
	if err != nil || response.GetStatus().GetNodeId() != "reeve-1" {
		t.Fatalf("GetStatus: %v, %v", response, err)
	}
	stream, err := a.client().WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		want := fmt.Sprint("reeve-", n)
		a.status.Set(&nodev1.Status{NodeId: want})
		for {
			response, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if response.GetStatus().GetNodeId() == want {
				break
			}
		}
	}
}

func TestWatchersDoNotHoldUpTheEnd(t *testing.T) {
	nodeapi.WaitsForEver(t)
	a := serve(t)
	stream, err := a.client().WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	remote, err := nodev1.NewNodeServiceClient(a.remote(selfSigned(t, a.owner))).WatchStatus(a.context(), &nodev1.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []interface {
		Recv() (*nodev1.WatchStatusResponse, error)
	}{stream, remote} {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	a.stop()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestAnImportIsCutOffWhenTheCoreStops(t *testing.T) {
	a := serve(t)
	began := make(chan struct{})
	var read error
	a.imports(func(ctx context.Context, r io.Reader) (string, *rolev1.Manifest, error) {
		close(began)
		_, read = io.Copy(io.Discard, r)
		return "", nil, errors.Join(read, ctx.Err())
	})
	stream, err := a.client().ImportPlugin(a.context())
	if err != nil {
		t.Fatal(err)
	}
	<-began
	a.stop() // returns only when the import has
	if read == nil {
		t.Error("the import went on to its end")
	}
	if _, err := stream.CloseAndRecv(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("the call ended with %v", err)
	}
}

func TestNoStatusYet(t *testing.T) {
	a := serve(t)
	a.stop()
	b := &api{t: t, dir: a.dir, socket: a.socket}
	b.run()
	_, err := b.client().GetStatus(b.context(), &nodev1.GetStatusRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("before there is a status: %v", err)
	}
	stream, err := b.client().WatchStatus(b.context(), &nodev1.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b.status.Set(&nodev1.Status{NodeId: "first"})
	if response, err := stream.Recv(); err != nil || response.GetStatus().GetNodeId() != "first" {
		t.Errorf("the first status: %v, %v", response, err)
	}
}
