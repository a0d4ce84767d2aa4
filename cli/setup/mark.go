package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/reeveproject/reeve/cli/fault"
)

// MarkSuffix is what reeved appends to the name of a parameters file for the mark that remembers that they made a node.
const MarkSuffix = ".made"

// CheckMark refuses to set up a machine whose parameters file already made a node that is not in the state directory: its disk may not be mounted.
func CheckMark(file, state string) error {
	if _, err := os.Lstat(filepath.Join(state, "system", "configuration.json")); err == nil {
		return nil
	}
	content, err := os.ReadFile(file + MarkSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var mark struct {
		Content struct {
			NodeID    string `json:"node_id"`
			ClusterID string `json:"cluster_id"`
			Places    []struct {
				Target string `json:"target"`
				Source string `json:"source"`
			} `json:"places"`
		} `json:"content"`
	}
	if err == nil {
		err = json.Unmarshal(content, &mark)
	}
	if err != nil {
		return fault.Wrap(fault.Refused, err, "cannot read which node this machine was", "Give --again to set it up as another one.")
	}
	next := "Restore that directory, or give --again to give that node up and make another one."
	for _, place := range mark.Content.Places {
		next = fmt.Sprintf("It was on %s, mounted at %s: see whether that is mounted. ", place.Source, place.Target) + next
		break
	}
	return fault.New(fault.Refused, fmt.Sprintf("this machine was set up as node %s of cluster %s before (see %s), and the node is not in %s",
		mark.Content.NodeID, mark.Content.ClusterID, file+MarkSuffix, state), next)
}

// ForgetMark removes the mark of a node that its operator gives up.
func ForgetMark(file string) error {
	if err := os.Remove(file + MarkSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pathFault(err, "cannot remove the mark of the former node")
	}
	return nil
}
