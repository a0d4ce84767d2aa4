package output

import (
	"fmt"
	"io"
	"time"
)

// Bundle is the document of `reeve bundle`, and the file bundle.json in one.
type Bundle struct {
	// File is where the bundle is; empty in bundle.json.
	File    string     `json:"file"`
	Created *time.Time `json:"created"`
	// Contents are the files in it, sorted by name.
	Contents []BundleFile `json:"contents"`
	// Missing is what could not be read, and why.
	Missing []Missing `json:"missing"`
	// Redacted is how many secrets, or what looked like one, were taken out of the texts.
	Redacted int `json:"redacted"`
}

// BundleFile is a file in a bundle.
type BundleFile struct {
	Name string `json:"name"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// Truncated says that only the end of it is there.
	Truncated bool `json:"truncated"`
}

// Missing is something that could not be read.
type Missing struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

func (b Bundle) table(w io.Writer, _ time.Time) {
	row(w, "FILE", "SIZE")
	for _, file := range b.Contents {
		size := formatSize(file.Size)
		if file.Truncated {
			size += " (only the end)"
		}
		row(w, file.Name, size)
	}
	if len(b.Missing) > 0 {
		_, _ = fmt.Fprintln(w, "\nCould not be read:")
		missingRows(w, b.Missing)
	}
	_, _ = fmt.Fprintf(w, "\n%s: configurations and published values are left out, and %d more secrets, or what looked like one. Look through it before you hand it on.\n",
		Clean(b.File), b.Redacted)
}

func missingRows(w io.Writer, of []Missing) {
	for _, missing := range of {
		row(w, "  "+missing.What, missing.Reason)
	}
}
