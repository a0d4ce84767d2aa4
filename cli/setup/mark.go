package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/proto/mountinfo"
)

// MarkSuffix is what reeved appends to the name of a parameters file for the mark that remembers that they made a node.
const MarkSuffix = ".made"

// mark is what reeved remembers beside the parameters.
type mark struct {
	NodeID    string  `json:"node_id"`
	ClusterID string  `json:"cluster_id"`
	Places    []place `json:"places"`
}

// place is a part of the node on a mount.
type place struct {
	Path   string `json:"path"`
	Target string `json:"target"`
	Source string `json:"source"`
}

// CheckMark refuses a parameters file that already made a node of which a part is not there: its disk may not be mounted. The error is fs.ErrPermission if the caller may
// not know.
func CheckMark(file, system string) error {
	var document struct {
		Content mark `json:"content"`
	}
	content, err := os.ReadFile(file + MarkSuffix)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = json.Unmarshal(content, &document)
	}
	if err != nil {
		return fault.Wrap(fault.Refused, err, "cannot read which node this machine was", "Give --again to set it up as another one.")
	}
	node := document.Content
	mounts, err := mountinfo.Own()
	if err != nil {
		return err
	}
	for _, place := range node.Places {
		if entries, err := os.ReadDir(place.Path); len(entries) > 0 || isFile(place.Path) || err != nil && !errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(mounts, func(m mountinfo.Mount) bool { return m.Target == place.Target }) {
			continue
		}
		return fault.New(fault.Refused, fmt.Sprintf("nothing is mounted at %s, where %s held %s of node %s of cluster %s (see %s)",
			place.Target, place.Source, place.Path, node.NodeID, node.ClusterID, file+MarkSuffix), "Mount it, or give --again to give that node up and make another one.")
	}
	if _, err := os.Lstat(filepath.Join(system, "configuration.json")); err == nil {
		return nil
	}
	return fault.New(fault.Refused, fmt.Sprintf("this machine was set up as node %s of cluster %s before (see %s), and the node is not in %s",
		node.NodeID, node.ClusterID, file+MarkSuffix, system), "Restore that directory, or give --again to give that node up and make another one.")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// ForgetMark removes the mark of a node that its operator gives up.
func ForgetMark(file string) error {
	if err := os.Remove(file + MarkSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pathFault(err, "cannot remove the mark of the former node")
	}
	return nil
}
