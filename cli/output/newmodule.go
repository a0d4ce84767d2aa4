package output

import (
	"fmt"
	"io"
	"time"
)

// NewModule is the document of `reeve plugin new`.
type NewModule struct {
	Plugin string `json:"plugin"`
	// Directory is where the module was written, as it was asked for, Files what is in it.
	Directory string   `json:"directory"`
	Files     []string `json:"files"`
}

func (m NewModule) table(w io.Writer, _ time.Time) {
	_, _ = fmt.Fprintf(w, "The plugin %s is in %s:\n\n", m.Plugin, m.Directory)
	for _, file := range m.Files {
		_, _ = fmt.Fprintf(w, "  %s\n", file)
	}
	_, _ = fmt.Fprintf(w, "\nNext: cd %s && make build test conformance\n", m.Directory)
}
