package door_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// TestSnapshotIsForTheClusterUser holds that the cluster user gets a snapshot, and nobody else: it has what all users have stored.
func TestSnapshotIsForTheClusterUser(t *testing.T) {
	n := start(t, storetest.Directory(t))
	n.ensure(t, "ant")
	ant, curator := n.instance(t, "ant.1", "ant"), n.instance(t, "curator.1", "curator")
	n.open(t, ant, curator)
	ctx := storetest.Context(t)

	stream, err := consensusv1.NewSnapshotServiceClient(rawConnection(t, ant.Socket)).TakeSnapshot(ctx, &consensusv1.TakeSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user that is not the cluster user: %v", err)
	}

	client := consensusv1.NewSnapshotServiceClient(rawConnection(t, curator.Socket))
	if stream, err = client.TakeSnapshot(ctx, &consensusv1.TakeSnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := snapshot.ParseManifest(first.GetManifest())
	if err != nil {
		t.Fatal(err)
	}
	var payload bytes.Buffer
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		payload.Write(part.GetData())
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(payload.Bytes())); got != manifest.PayloadSHA256 || int64(payload.Len()) != manifest.PayloadSize {
		t.Errorf("%d bytes with hash %s came, and the manifest says %+v", payload.Len(), got, manifest)
	}

	// Who has gone does not keep others from a snapshot.
	gone, cancel := context.WithCancel(ctx)
	if stream, err = client.TakeSnapshot(gone, &consensusv1.TakeSnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	storetest.Eventually(t, "the next snapshot is taken", func() bool {
		stream, err := client.TakeSnapshot(ctx, &consensusv1.TakeSnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if code := status.Code(err); code != codes.OK && code != codes.ResourceExhausted {
			t.Fatal(err)
		}
		return err == nil
	})
	if stream, err = client.TakeSnapshot(ctx, &consensusv1.TakeSnapshotRequest{Recipient: "somebody"}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("sealed to nobody: %v", err)
	}
}

// TestRehearsedSnapshot holds that what the cluster user has in a snapshot that was rehearsed comes before its manifest.
func TestRehearsedSnapshot(t *testing.T) {
	n := start(t, storetest.Directory(t))
	curator := n.instance(t, "curator.1", "curator")
	n.open(t, curator)
	ctx := storetest.Context(t)
	if _, err := n.store.Client().Put(store.Root(ctx), consensusv1.UserPrefix("curator")+"cluster", "record"); err != nil {
		t.Fatal(err)
	}
	stream, err := consensusv1.NewSnapshotServiceClient(rawConnection(t, curator.Socket)).TakeSnapshot(ctx, &consensusv1.TakeSnapshotRequest{Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for {
		part, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if record := part.GetRecord(); record != nil {
			found[string(record.GetKey())] = string(record.GetValue())
			continue
		}
		manifest, err := snapshot.ParseManifest(part.GetManifest())
		if err != nil {
			t.Fatal(err)
		}
		if got := manifest.Rehearsal; got == nil || got.Records != int64(len(found)) || got.Users["curator"] != got.Records || found["cluster"] != "record" {
			t.Errorf("after %v: %+v", found, got)
		}
		return
	}
}
