package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// volumeVersion is the format version of the volume file.
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

// volumeDraft is the prefix of the drafts that an interrupted write of the volume file leaves.
const volumeDraft = ".volume.json"

// Volume is the content of the volume file: what the volume is and whose.
type Volume struct {
	Version   int        `json:"version"`
	Kind      VolumeKind `json:"kind"`
	ClusterID string     `json:"cluster_id"`
	NodeID    string     `json:"node_id"`
}

// VolumeError says why a volume is not opened. Its content is unchanged.
type VolumeError struct {
	// Data is the volume's directory.
	Data string
	// Problem says what is wrong and what to do.
	Problem string
}

func (e *VolumeError) Error() string {
	return fmt.Sprintf("storage: the volume %s is not opened: %s", e.Data, e.Problem)
}

// OpenVolume opens a node's volume. With format, it first makes the volume in an empty directory. *VolumeError if the volume is missing or another
// node's. It never formats what exists.
func (s *Storage) OpenVolume(want Volume, format bool) error {
	want.Version = volumeVersion
	content, err := os.ReadFile(s.Volume())
	if errors.Is(err, fs.ErrNotExist) {
		if !format {
			return &VolumeError{Data: s.Data, Problem: fmt.Sprintf("%s is missing, though node %s is a member of cluster %s: mount the disk that holds it, or restore the directory from a backup. Keep the system directory, without which the node's data is lost", filepath.Base(s.Volume()), want.NodeID, want.ClusterID)}
		}
		found, err := Content(s.Data)
		if err != nil {
			return err
		}
		if found != "" {
			return &VolumeError{Data: s.Data, Problem: fmt.Sprintf("it is not empty (there is %s), and only an empty directory is formatted: empty it, or choose another one", found)}
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

// Content returns the name of something in a directory; "" if it is empty or missing. A new file system's lost+found and the drafts of an interrupted write
// of the volume file do not count.
func Content(path string) (string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("storage: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != "lost+found" && !strings.HasPrefix(name, volumeDraft) {
			return name, nil
		}
	}
	return "", nil
}

func parseVolume(content []byte) (volume Volume, err error) {
	var version *VersionError
	if err = ParseStrictJSON(content, volumeVersion, &volume); errors.As(err, &version) {
		return Volume{}, fmt.Errorf("volume.json cannot be read: %w", err)
	} else if err != nil {
		return Volume{}, fmt.Errorf("volume.json is damaged (%w): restore it", err)
	}
	return volume, nil
}
