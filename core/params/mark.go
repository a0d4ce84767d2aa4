package params

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/mountinfo"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const (
	// markVersion is the format version of the mark.
	markVersion = 1
	// markSuffix is what the mark's name has after the name of the parameters.
	markSuffix = ".made"
	// firmwareMark is the mark of parameters that the machine's firmware gives.
	firmwareMark = "/etc/reeve/firmware" + markSuffix
	// uuids has a link to each device by the ID of its file system.
	uuids = "/dev/disk/by-uuid"
)

// MarkPath returns the file that remembers that the parameters in a file made a node.
func MarkPath(file string) string {
	if file == FirmwareFile {
		return firmwareMark
	}
	return file + markSuffix
}

// Mark remembers, beside the parameters, that they made a node and on which mounts it lies. So a machine whose disk is not mounted does not make a second
// one. It is not safe for concurrent use.
type Mark struct {
	path string
	// kept is nil if there is no mark, or none that can be read.
	kept *marked
	// err says why a mark that is there cannot be read.
	err error
}

type marked struct {
	Digest    string   `json:"digest"`
	NodeID    string   `json:"node_id"`
	ClusterID string   `json:"cluster_id"`
	Places    []marker `json:"places"`
}

// marker is a place of the node on a mount that is not the root file system.
type marker struct {
	Path string `json:"path"`
	// Target is the mount point.
	Target string `json:"target"`
	// Source, Type and UUID name the file system that was mounted. The ID is empty where the machine does not tell it.
	Source string `json:"source"`
	Type   string `json:"type"`
	UUID   string `json:"uuid,omitempty"`
}

func (m marker) String() string {
	return cmp.Or(m.UUID, m.Source) + " (" + m.Type + ")"
}

// OpenMark reads the mark of the parameters in a file. No file: the mark remembers nothing.
func OpenMark(file string) *Mark {
	if file == "" {
		return &Mark{}
	}
	m := &Mark{path: MarkPath(file)}
	var kept marked
	switch err := storage.ReadDocument(m.path, markVersion, &kept); {
	case err == nil:
		m.kept = &kept
	case !errors.Is(err, fs.ErrNotExist):
		m.err = err
	}
	return m
}

// Place is where a part of a node lies.
type Place struct {
	// Path is a directory or a file.
	Path string
	// Missing says that this part of the node is not there.
	Missing bool
}

// MountError says that a part of a node is missing since its file system is not mounted.
type MountError struct {
	// Path is the part of the node, Target the mount point, FileSystem what was mounted there, and Now what is; empty: nothing.
	Path, Target, FileSystem, Now string
	// NodeID and ClusterID are those of the node.
	NodeID, ClusterID string
	// Mark is the file that remembers it.
	Mark string
}

func (e *MountError) Error() string {
	return fmt.Sprintf("params: %s is mounted at %s, where the file system %s held %s of node %s of cluster %s (%s remembers it): nothing was made or changed. "+
		"Mount it (`mount %s`) and start again. If the disk is broken, restore %s from a backup. To give that node up and make a new one, run reeved (or `reeve dev up`) once with --again",
		cmp.Or(e.Now, "nothing"), e.Target, e.FileSystem, e.Path, e.NodeID, e.ClusterID, e.Mark, e.Target, e.Path)
}

// CheckMounts fails with *MountError if a part of the node is missing, and the file system that held it is not mounted.
func (m *Mark) CheckMounts(places ...Place) error {
	if m.kept == nil {
		return nil
	}
	for _, place := range places {
		for _, was := range m.kept.Places {
			if !place.Missing || was.Path != place.Path {
				continue
			}
			mounts, err := mountinfo.Own()
			if err != nil {
				return fmt.Errorf("params: %w", err)
			}
			now := mountOf(mounts, place.Path)
			other := ""
			if now != nil && now.Target == was.Target {
				// A directory that is always a mount point, as in a container, may have another file system. Its source may change with each boot, its ID does not.
				id := uuidOf(now.Device)
				if was.UUID == "" || id == "" || id == was.UUID {
					continue
				}
				other = "the file system " + id
			}
			return &MountError{
				Now: other, Path: was.Path, Target: was.Target, FileSystem: was.String(), NodeID: m.kept.NodeID, ClusterID: m.kept.ClusterID, Mark: m.path,
			}
		}
	}
	return nil
}

// MarkedError says that parameters already made a node of which nothing is there.
type MarkedError struct {
	// Mark is the file that says so.
	Mark string
	// NodeID and ClusterID are the node and cluster that they made.
	NodeID, ClusterID string
	// Was says on which file systems the node was; empty: on the root file system.
	Was string
}

func (e *MarkedError) Error() string {
	was := ""
	if e.Was != "" {
		was = " It was on " + e.Was + ": see whether that is mounted."
	}
	return fmt.Sprintf("params: these parameters already made node %s of cluster %s (see %s), and its sealed configuration is not there: they do not make another node.%s "+
		"Restore the node's system directory. To give that node up and make a new one, run reeved (or `reeve dev up`) once with --again", e.NodeID, e.ClusterID, e.Mark, was)
}

// Check fails with *MarkedError if the parameters made a node, and with *ConsumedFileError if nobody can know.
func (m *Mark) Check(parameters *nodev1.Parameters, ticketID string) error {
	if m.err != nil {
		return &ConsumedFileError{Path: m.path, Err: m.err}
	}
	if m.kept == nil {
		return nil
	}
	digest, err := enrolment(parameters, ticketID)
	if err != nil || digest != m.kept.Digest {
		return err
	}
	var was []string
	for _, place := range m.kept.Places {
		if text := fmt.Sprintf("%s, mounted at %s", place, place.Target); !slices.Contains(was, text) {
			was = append(was, text)
		}
	}
	return &MarkedError{Mark: m.path, NodeID: m.kept.NodeID, ClusterID: m.kept.ClusterID, Was: strings.Join(was, ", and ")}
}

// Keep remembers that the parameters, as they are now, made a node, of which parts lie at some paths. It does not write what is remembered already.
func (m *Mark) Keep(parameters *nodev1.Parameters, ticketID, nodeID, clusterID string, paths ...string) error {
	if m.path == "" {
		return nil
	}
	next := &marked{NodeID: nodeID, ClusterID: clusterID}
	var err error
	if next.Digest, err = enrolment(parameters, ticketID); err != nil {
		return err
	}
	mounts, err := mountinfo.Own()
	if err != nil {
		return fmt.Errorf("params: %w", err)
	}
	for _, path := range paths {
		if on := mountOf(mounts, path); on != nil {
			next.Places = append(next.Places, marker{Path: path, Target: on.Target, Source: on.Source, Type: on.Type, UUID: uuidOf(on.Device)})
		}
	}
	if reflect.DeepEqual(next, m.kept) {
		return nil
	}
	if m.path == firmwareMark {
		if err := storage.MakeDirectories(filepath.Dir(m.path), 0o755); err != nil {
			return err
		}
	}
	if err := storage.WriteDocument(m.path, markVersion, next, consumedMode); err != nil {
		return err
	}
	m.kept, m.err = next, nil
	return nil
}

// Forget removes the mark of a node that was removed from its cluster.
func (m *Mark) Forget() error {
	if m.path == "" {
		return nil
	}
	// A read-only file system refuses the removal also of what is not there.
	if _, err := os.Lstat(m.path); !errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(m.path); err != nil {
			return err
		}
	}
	m.kept, m.err = nil, nil
	return nil
}

// mountOf returns the mount that a path lies on; nil if that is the root file system. A path that is not there lies where its nearest parent does.
func mountOf(mounts []mountinfo.Mount, path string) *mountinfo.Mount {
	if on := mountinfo.On(mounts, path); on != nil && on.Target != "/" {
		return on
	}
	return nil
}

// uuidOf returns the ID of a device's file system; "" if the machine does not tell it.
func uuidOf(device uint64) string {
	links, _ := os.ReadDir(uuids)
	for _, link := range links {
		var stat unix.Stat_t
		if unix.Stat(filepath.Join(uuids, link.Name()), &stat) == nil && stat.Rdev == device {
			return "UUID=" + link.Name()
		}
	}
	return ""
}
