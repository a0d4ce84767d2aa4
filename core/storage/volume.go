package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// volumeVersion is the version of the format of the volume file.
const volumeVersion = 1

// VolumeKind is how a volume keeps its data.
type VolumeKind string

// The kinds of volume.
const (
	// Plain is a directory without encryption.
	Plain VolumeKind = "plain"
	// Fscrypt is a directory that the file system encrypts.
	Fscrypt VolumeKind = "fscrypt"
	// LUKS is a LUKS2 container on a block device.
	LUKS VolumeKind = "luks"
)

// VolumeDraft is how the names begin that the interrupted writing of a volume file may have left.
const VolumeDraft = ".volume.json"

// Volume is the volume file: it says what a volume is and whose.
type Volume struct {
	Version   int        `json:"version"`
	Kind      VolumeKind `json:"kind"`
	ClusterID string     `json:"cluster_id"`
	NodeID    string     `json:"node_id"`
}

// VolumeError says why a volume is not opened. What is on it stays as it is.
type VolumeError struct {
	// Data is the volume's directory.
	Data string
	// Problem says what is wrong and what to do.
	Problem string
}

func (e *VolumeError) Error() string {
	return fmt.Sprintf("storage: the volume %s is not opened: %s", e.Data, e.Problem)
}

// OpenVolume opens the volume of a node. With format it makes the volume first, if the directory is empty. *VolumeError if what is there is not
// this node's volume, or is missing; nothing that exists is ever formatted.
func (s *Storage) OpenVolume(want Volume, format bool) error {
	want.Version = volumeVersion
	content, err := os.ReadFile(s.Volume())
	if errors.Is(err, fs.ErrNotExist) {
		if !format {
			return &VolumeError{Data: s.Data, Problem: fmt.Sprintf("%s is missing, though node %s is a member of cluster %s: restore the directory, or remove the node from its cluster and start with an empty system directory", filepath.Base(s.Volume()), want.NodeID, want.ClusterID)}
		}
		if err := s.checkEmpty(); err != nil {
			return err
		}
		return WriteJSON(s.Volume(), want, 0o400)
	}
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	have, err := parseVolume(content)
	if err != nil {
		return &VolumeError{Data: s.Data, Problem: err.Error()}
	}
	if have != want {
		return &VolumeError{Data: s.Data, Problem: fmt.Sprintf("it is the %s volume of node %s of cluster %s, not the %s volume of node %s of cluster %s: point directories.data to the right one, or to an empty directory", have.Kind, have.NodeID, have.ClusterID, want.Kind, want.NodeID, want.ClusterID)}
	}
	return nil
}

// checkEmpty lets through what an interrupted write of the volume file may have left, and what a new file system has.
func (s *Storage) checkEmpty() error {
	entries, err := os.ReadDir(s.Data)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if name != "lost+found" && !strings.HasPrefix(name, VolumeDraft) {
			return &VolumeError{Data: s.Data, Problem: fmt.Sprintf("it is not empty (there is %s), and only an empty directory is formatted: empty it, or choose another one", name)}
		}
	}
	return nil
}

func parseVolume(content []byte) (Volume, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &version); err != nil {
		return Volume{}, fmt.Errorf("volume.json is damaged (%w): restore it", err)
	}
	if version.Version != volumeVersion {
		return Volume{}, fmt.Errorf("volume.json has version %d, and this reeved reads version %d: use the reeved that wrote it, or a newer one", version.Version, volumeVersion)
	}
	var volume Volume
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&volume); err != nil {
		return Volume{}, fmt.Errorf("volume.json is damaged (%w): restore it", err)
	}
	return volume, nil
}
