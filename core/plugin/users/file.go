package users

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// formatVersion is the version of every file of this package. A file of another version is refused, not guessed at.
const formatVersion = 1

// versioned is the part that all files of this package have in common.
type versioned struct {
	Version int `json:"version"`
}

// readJSON reads a versioned JSON file. A file that is absent leaves into unchanged and is no error.
func readJSON(path string, into any) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var head versioned
	if err := json.Unmarshal(content, &head); err != nil {
		return fmt.Errorf("%s: not JSON: %w", path, err)
	}
	if head.Version != formatVersion {
		return fmt.Errorf("%s: format version %d, this core knows %d", path, head.Version, formatVersion)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
