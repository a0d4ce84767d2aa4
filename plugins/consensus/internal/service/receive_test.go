package service_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// snapshotOf returns the manifest and the payload, decompressed, of a snapshot of a new store.
func snapshotOf(t *testing.T) (manifest, database []byte) {
	t.Helper()
	s, stop := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	defer stop()
	taken, err := s.Snapshot(storetest.Context(t), store.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	decoder, err := zstd.NewReader(taken)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	database, err = io.ReadAll(decoder)
	if err != nil {
		t.Fatal(err)
	}
	return taken.Manifest, database
}

// send sends a snapshot in parts. What is not read any more is not sent.
func send(t *testing.T, p *plugin, manifest, database []byte) error {
	t.Helper()
	stream, err := p.ReceiveSnapshot(storetest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&consensusv1.ReceiveSnapshotRequest{Part: &consensusv1.ReceiveSnapshotRequest_Manifest{Manifest: manifest}})
	for rest := database; err == nil && len(rest) > 0; {
		part := rest[:min(len(rest), 32<<10)]
		rest = rest[len(part):]
		err = stream.Send(&consensusv1.ReceiveSnapshotRequest{Part: &consensusv1.ReceiveSnapshotRequest_Data{Data: part}})
	}
	if err != nil && err != io.EOF {
		return err
	}
	_, err = stream.CloseAndRecv()
	return err
}

func TestAStoreIsRestored(t *testing.T) {
	manifest, database := snapshotOf(t)
	p := start(t, storetest.Directory(t))
	ctx := storetest.Context(t)
	request := formNew()
	request.NodeId, request.How = "reeve-9", &consensusv1.FormRequest_Restored{Restored: &consensusv1.FormRestored{}}
	if _, err := p.Form(ctx, request); problem(err) != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING {
		t.Errorf("without a snapshot: %v", err)
	}
	broken := bytes.Clone(database)
	broken[len(broken)-sha256.Size-1] ^= 1
	if err := send(t, p, manifest, broken); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a damaged snapshot: %v", err)
	}
	for range 2 {
		if err := send(t, p, manifest, database); err != nil {
			t.Fatal(err)
		}
	}
	formed, err := p.Form(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t, p, manifest, database); err != nil {
		t.Errorf("to a store that runs: %v", err)
	}
	if again, err := p.Form(ctx, request); err != nil || again.GetMemberId() != formed.GetMemberId() {
		t.Errorf("again: %v, %v", again, err)
	}
}
