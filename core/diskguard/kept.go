package diskguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
)

const (
	// keptVersion is the version of the format of the file of the stopped roles.
	keptVersion = 1
	// maxKept is how large that file is at most, in bytes.
	maxKept = 1 << 20
)

// keptFile is the file of the stopped roles.
type keptFile struct {
	Version int             `json:"version"`
	Stopped map[string]stop `json:"stopped"`
}

func readStopped(path string) (map[string]stop, error) {
	content, err := storage.ReadSmall(path, maxKept)
	if errors.Is(err, fs.ErrNotExist) {
		return make(map[string]stop), nil
	}
	if err != nil {
		return nil, err
	}
	return parseStopped(content)
}

func parseStopped(content []byte) (map[string]stop, error) {
	var file keptFile
	if err := storage.ParseJSON(content, keptVersion, &file); err != nil {
		return nil, err
	}
	stopped := make(map[string]stop)
	for role, s := range file.Stopped {
		if !identity.ValidName(role) || s.Reason == "" {
			return nil, fmt.Errorf("%q is no stopped role", limits.Cut(role, limits.Name))
		}
		s.Reason = limits.Cut(limits.Clean(s.Reason), maxReason)
		stopped[role] = s
	}
	return stopped, nil
}

func writeStopped(path string, stopped map[string]stop) error {
	if len(stopped) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return storage.WriteJSON(path, keptFile{Version: keptVersion, Stopped: stopped}, 0o600)
}
