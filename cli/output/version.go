package output

import (
	"fmt"
	"io"
	"time"
)

// Version is the document of `reeve version`.
type Version struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Node is the node that was asked; null: none was named, or none answered.
	Node *NodeVersion `json:"node"`
	// Problem says why a node that was named did not answer; empty: it did, or none was named.
	Problem string `json:"problem"`
}

// NodeVersion is the version of a node's reeved.
type NodeVersion struct {
	ID      string `json:"id"`
	Version string `json:"version"`
}

func (v Version) table(w io.Writer, _ time.Time) {
	_, _ = fmt.Fprintf(w, "reeve %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	switch {
	case v.Node != nil:
		_, _ = fmt.Fprintf(w, "reeved %s (node %s)\n", Clean(v.Node.Version), Clean(v.Node.ID))
	case v.Problem != "":
		_, _ = fmt.Fprintf(w, "reeved: %s\n", Clean(v.Problem))
	}
}
