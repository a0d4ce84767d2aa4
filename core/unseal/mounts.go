package unseal

import (
	"errors"
	"io/fs"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/params"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// CheckMounts fails with *params.MountError if a part of the node is missing because its file system is not mounted. Call it before the node's directories
// are made: a mount would hide them.
func CheckMounts(parameters *nodev1.Parameters, mark *params.Mark) error {
	layout := storage.NewLayout(parameters.GetDirectories())
	kind, err := kindOf(parameters, layout, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	description := kind("").Describe()
	var places []params.Place
	for _, path := range paths(layout, description) {
		gone, err := missing(layout, description, path)
		if err != nil {
			return err
		}
		places = append(places, params.Place{Path: path, Missing: gone})
	}
	return mark.CheckMounts(places...)
}

// Fresh reports whether there is nothing of a node in system/.
func Fresh(layout storage.Layout) bool { return fresh(layout) && !there(layout.Disowned()) }

// paths are the files and directories without which there is no node. A device is not among them: whoever opens it says that it is missing.
func paths(layout storage.Layout, description volume.Description) []string {
	found := []string{layout.System}
	if description.Kind != storage.LUKS {
		found = append(found, description.Location)
	}
	return found
}

// missing reports whether there is nothing of the node at one of its paths.
func missing(layout storage.Layout, description volume.Description, path string) (bool, error) {
	switch {
	case path == layout.System:
		return Fresh(layout), nil
	case description.Kind == storage.Plain:
		return !there(layout.Volume()), nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil || !info.IsDir():
		// Whoever opens it says what is wrong with it.
		return false, nil
	}
	found, err := storage.Content(path)
	return found == "", err
}
