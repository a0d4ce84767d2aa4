package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/reeveproject/reeve/plugins/consensus/internal/steps"
	"github.com/reeveproject/reeve/sdk/checkpoint"
)

// markerVersion is the version of the marker's format and of the layout of the data directory.
const markerVersion = 1

// maxMarker bounds the marker's size in bytes; a real one has about 200.
const maxMarker = 64 << 10

// phase is how far the making of a store got.
type phase string

const (
	// forming: nothing of value is stored yet, since nobody but this package has seen the store. It is begun again from nothing.
	forming phase = "forming"
	// complete: authorization is on and the cluster user exists. The store is never made again, whatever is missing.
	complete phase = "complete"
	// joining: the member, whose ID was chosen, asks for its place in the cluster's store or takes its data over. It goes on.
	joining phase = "joining"
	// removed: the store has removed the member for good. What is left of its files is to be deleted.
	removed phase = "removed"
	// replaced: the store has removed the member, and its node may still have one. Its data is to be put aside, and a new member to join.
	replaced phase = "replaced"
)

// marker says whose store the data directory holds. It is written before etcd writes anything, and again when the store is complete.
type marker struct {
	Version   int    `json:"version"`
	ClusterID string `json:"clusterId"`
	NodeID    string `json:"nodeId"`
	Phase     phase  `json:"phase"`
	// MemberID is etcd's ID of the local member, once it is known.
	MemberID string `json:"memberId,omitempty"`
	// Former is the member in whose place this one joins, by itself: its data was put aside. Empty: there is none, or this one has joined.
	Former string `json:"former,omitempty"`
	// Generation and GenerationID are those of the store of which the member has the data: zero and empty for the first one, and for a member that has none yet.
	Generation   uint64 `json:"generation,omitempty"`
	GenerationID string `json:"generationId,omitempty"`
}

func (m *marker) generation() Generation {
	id, _ := hex.DecodeString(m.GenerationID) // parseMarker has checked it
	return Generation{Number: m.Generation, ID: id}
}

func markerPath(directory string) string { return filepath.Join(directory, "store.json") }

// readMarker returns the marker's content, cut off just above the bound. It fails with fs.ErrNotExist if there is none.
func readMarker(directory string) ([]byte, error) {
	file, err := os.Open(markerPath(directory))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxMarker+1))
}

func parseMarker(content []byte) (*marker, error) {
	if len(content) > maxMarker {
		return nil, fmt.Errorf("longer than %d bytes", maxMarker)
	}
	var versioned struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &versioned); err != nil {
		return nil, fmt.Errorf("not a marker: %w", err)
	}
	if versioned.Version != markerVersion {
		return nil, fmt.Errorf("version %d, but this release of the consensus role knows only version %d", versioned.Version, markerVersion)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var m marker
	if err := decoder.Decode(&m); err != nil {
		return nil, fmt.Errorf("not a marker: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a marker: something follows it")
	}
	if m.ClusterID == "" || m.NodeID == "" {
		return nil, errors.New("not a marker: the cluster ID or the node ID is empty")
	}
	if _, err := hex.DecodeString(m.GenerationID); err != nil {
		return nil, errors.New("not a marker: the ID of the generation is not hexadecimal")
	}
	switch {
	case m.Phase == forming && m.MemberID == "" && m.Former == "":
	case m.Phase == joining && isMemberID(m.MemberID) && (m.Former == "" || isMemberID(m.Former)):
	case (m.Phase == complete || m.Phase == removed || m.Phase == replaced) && isMemberID(m.MemberID) && m.Former == "":
	default:
		return nil, fmt.Errorf("not a marker: phase %q with member ID %q and former %q", m.Phase, m.MemberID, m.Former)
	}
	return &m, nil
}

func isMemberID(id string) bool { return id != "" && strings.TrimLeft(id, "0123456789abcdef") == "" }

// write replaces the marker so that after a crash, of the machine too, either the old or the new one is there.
func (m *marker) write(directory string) error {
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return checkpoint.Around(marks[m.Phase], func() error {
		if err := renameio.WriteFile(markerPath(directory), append(content, '\n'), 0o600, renameio.WithTempDir(directory)); err != nil {
			return err
		}
		return syncDirectory(directory)
	})
}

// marks are the steps of writing a marker.
var marks = map[phase]checkpoint.Step{forming: steps.MarkForming, complete: steps.MarkComplete, joining: steps.MarkJoining, removed: steps.MarkRemoved, replaced: steps.MarkReplaced}

func syncDirectory(directory string) error {
	handle, err := os.Open(directory)
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.Sync()
}
