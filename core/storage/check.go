package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Check returns what Open would refuse of a node's directories, all of it, and changes nothing. What is not there yet counts as what Open would make.
func Check(layout Layout) (problems []error) {
	for _, path := range []string{layout.System, layout.Data, layout.Run} {
		for parent := path; ; parent = filepath.Dir(parent) {
			info, err := os.Stat(parent)
			if errors.Is(err, fs.ErrNotExist) && parent != filepath.Dir(parent) {
				continue
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("storage: %w", err))
			} else if !info.IsDir() {
				problems = append(problems, fmt.Errorf("storage: %s is not a directory: move it away, or give this node other directories", parent))
			}
			break
		}
	}
	if os.Geteuid() != 0 {
		return problems
	}
	if err := searchable(layout.Data, layout.Run); err != nil {
		problems = append(problems, err)
	}
	return problems
}
