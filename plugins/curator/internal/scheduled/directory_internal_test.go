package scheduled

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/proto/snapshot/snapshottest"
)

// failing is a payload that breaks off with an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestFullDisk holds that a snapshot for which there is no room leaves nothing behind, says so, and that those which are there stay.
func TestFullDisk(t *testing.T) {
	directory := OpenDirectory(filepath.Join(t.TempDir(), "snapshots"), "one")
	if err := directory.prepare(); err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("payload"), 1000)
	header := snapshottest.Rehearsed(t, payload)
	task := func(number uint64) *clusterv1.SnapshotTask {
		return &clusterv1.SnapshotTask{Number: number, NodeId: "one", Asked: timestamppb.New(time.Unix(2_000_000_000, 0).Add(time.Duration(number) * time.Hour))}
	}
	const all = 1 << 30
	need := uint64(header.Size()) + all/marginPart
	free := need
	directory.freeSpace = func(string) (uint64, uint64, error) { return free, all, nil }
	if err := directory.Write(task(1), header, bytes.NewReader(payload)); err != nil {
		t.Fatalf("there is just room enough: %v", err)
	}
	only := func(when string) {
		t.Helper()
		entries, err := os.ReadDir(directory.path)
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: %v, %v", when, entries, err)
		}
		file, _, err := directory.Open(nameOf(task(1)))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer file.Close()
		if content, err := io.ReadAll(file); err != nil || !bytes.Equal(content, append(header.Marshal(), payload...)) {
			t.Errorf("%s, the last good one has %d bytes, %v", when, len(content), err)
		}
	}

	free = need - 3<<20
	err := directory.Write(task(2), header, bytes.NewReader(payload))
	if !lacksRoom(err) || missing(err) != 3<<20 || !strings.Contains(err.Error(), "it has 17 MiB free, and 21 MiB are needed: make room on it") {
		t.Errorf("3 MiB are missing: %v, %d", err, missing(err))
	}
	only("there is too little room")

	// Somebody else fills the disk meanwhile.
	free = need
	for full, lacks := range map[error]bool{unix.ENOSPC: true, unix.EDQUOT: true, unix.EIO: false} {
		err := directory.Write(task(2), header, io.MultiReader(bytes.NewReader(payload[:100]), failing{full}))
		if !errors.Is(err, full) || lacksRoom(err) != lacks || missing(err) != 0 {
			t.Errorf("%v: %v, %d", full, err, missing(err))
		}
		only(full.Error())
	}

	// How much is missing tells whether the last one may go, which it never may.
	if removed, err := directory.makeRoom(1); removed != 0 || err != nil {
		t.Errorf("%d, %v", removed, err)
	}
	only("room was asked for")
	if err := directory.Write(task(2), header, bytes.NewReader(payload)); err != nil {
		t.Error(err)
	}
	if removed, err := directory.makeRoom(1 << 40); removed != 0 || err == nil || !strings.Contains(err.Error(), "not enough") {
		t.Errorf("%d, %v", removed, err)
	}
	if removed, err := directory.makeRoom(1); removed != 1 || err != nil {
		t.Errorf("%d, %v", removed, err)
	}
	if kept, err := directory.List(); err != nil || len(kept) != 1 || kept[0].GetTask().GetNumber() != 2 {
		t.Errorf("%v, %v", kept, err)
	}
}
