package nodeapi_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/nodeapi"
	names "github.com/reeveproject/reeve/proto/identity"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
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

// Another node of the cluster is told the curators that this one knows, by the key of which its ID is made. One that the directory does not have any more is told nothing.
func TestAnotherNodeAsksForCurators(t *testing.T) {
	a := serve(t)
	key := newKey(t)
	ask := func() (*nodev1.ListCuratorsResponse, error) {
		return nodev1.NewNodeServiceClient(a.remote(selfSigned(t, key))).ListCurators(a.context(), &nodev1.ListCuratorsRequest{})
	}
	if answer, err := ask(); err == nil {
		t.Errorf("a node of which nobody knows is told %v", answer)
	}
	a.directory.Set(&hostv1.Directory{Nodes: []*hostv1.DirectoryNode{{NodeId: names.NodeID(key.Public().(ed25519.PublicKey))}}})
	curators := make([]string, 20)
	for i := range curators {
		curators[i] = fmt.Sprintf("192.0.2.%d:7443", i)
	}
	a.status.Set(&nodev1.Status{Cluster: &nodev1.ClusterAccess{Curators: curators}})
	if answer, err := ask(); err != nil || !slices.Equal(answer.GetCurators(), curators[:16]) {
		t.Errorf("%v, %v", answer.GetCurators(), err)
	}
	a.directory.Set(&hostv1.Directory{})
	if answer, err := ask(); err == nil {
		t.Errorf("a node that was removed is told %v", answer)
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
