package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

// ImageLoad is the document of `reeve kubernetes image load`.
type ImageLoad struct {
	// File is the archive; "-" is the standard input.
	File string `json:"file"`
	// DryRun says that nothing was loaded: it is where it would have been.
	DryRun bool            `json:"dry_run"`
	Nodes  []ImageLoadNode `json:"nodes"`
}

// ImageLoadNode is what became of an archive on a node.
type ImageLoadNode struct {
	NodeID string `json:"node_id"`
	// Result is "loaded", "failed", "skipped" (a node that nobody named, and that takes none at present) or, if nothing was done, "not-loaded".
	Result string `json:"result"`
	// Images are the names of the images that are there now.
	Images []string `json:"images"`
	// Bytes is how much of the archive the node has received.
	Bytes int64 `json:"bytes"`
	// Reason says why the images are not there; empty where they are.
	Reason string `json:"reason"`
}

// The results of ImageLoadNode.
const (
	ImagesLoaded    = "loaded"
	ImagesFailed    = "failed"
	ImagesSkipped   = "skipped"
	ImagesNotLoaded = "not-loaded"
)

func (d ImageLoad) table(w io.Writer, _ time.Time) {
	row(w, "NODE", "RESULT", "SIZE", "IMAGES", "REASON")
	for _, node := range d.Nodes {
		size := "-"
		if node.Result == ImagesLoaded {
			size = formatSize(node.Bytes)
		}
		row(w, node.NodeID, node.Result, size, strings.Join(node.Images, ", "), node.Reason)
	}
	if d.DryRun {
		_, _ = fmt.Fprintf(w, "Nothing was loaded (--dry-run).\n")
	}
}

// KubernetesCheck is the document of `reeve kubernetes check`.
type KubernetesCheck struct {
	Nodes []KubernetesCheckNode `json:"nodes"`
}

// KubernetesCheckNode is what the machine of a node lacks for running pods.
type KubernetesCheckNode struct {
	NodeID string `json:"node_id"`
	// HasRole says whether the node is to run kubernetes-worker.
	HasRole bool `json:"has_role"`
	// State is that of the role there, such as "Blocked"; empty: the node has not reported one.
	State string `json:"state"`
	// Known says whether it is known what is missing; otherwise Reason says why not.
	Known   bool                    `json:"known"`
	Missing []*kubernetesv1.Missing `json:"missing"`
	Reason  string                  `json:"reason"`
}

func (d KubernetesCheck) table(w io.Writer, _ time.Time) {
	row(w, "NODE", "WORKER", "MISSING", "REASON")
	for _, node := range d.Nodes {
		state := node.State
		switch {
		case !node.HasRole:
			state = "no role"
		case state == "":
			state = "not reported"
		}
		row(w, node.NodeID, state, node.count(), node.Reason)
	}
	for _, node := range d.Nodes {
		if len(node.Missing) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(w, "\nNode %s lacks:\n", Clean(node.NodeID))
		for _, missing := range node.Missing {
			_, _ = fmt.Fprintf(w, "  %s\n", Clean(missing.GetWhat()))
			if missing.GetRemedy() != "" {
				_, _ = fmt.Fprintf(w, "      %s\n", Clean(missing.GetRemedy()))
			}
		}
	}
}

// count is how much is missing, in words.
func (n KubernetesCheckNode) count() string {
	switch {
	case !n.Known:
		return "not known"
	case len(n.Missing) == 0:
		return "nothing"
	}
	return fmt.Sprint(len(n.Missing))
}
