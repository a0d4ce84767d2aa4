package output

import (
	"fmt"
	"io"
	"time"
)

// PluginDiff is the document of `reeve plugin diff`.
type PluginDiff struct {
	Name string `json:"name"`
	// Before is the version that runs; null: none.
	Before *PluginVersion `json:"before"`
	// After is the version that waits, or that of the file.
	After PluginVersion `json:"after"`
	// File is empty where After waits in the catalog.
	File string `json:"file"`
	// Same says that there is no difference.
	Same    bool           `json:"same"`
	Changes []PluginDetail `json:"changes"`
}

// PluginDetail is one difference of two versions.
type PluginDetail struct {
	// Role is empty where it is one of the plugin as a whole.
	Role string `json:"role"`
	// What is "version", "digest PLATFORM", "role", "grant", "consensus_user", "requires", "provides", "gives_up", "starts_from_cache", "ends_with_core",
	// "in_split", "stop_grace", "schema", "port" or "summary".
	What string `json:"what"`
	// Before and After are empty where there is nothing on that side.
	Before string `json:"before"`
	After  string `json:"after"`
}

func (d PluginDiff) table(w io.Writer, _ time.Time) {
	if d.Same {
		_, _ = fmt.Fprintf(w, "Plugin %s %s is what runs: nothing differs.\n", Clean(d.Name), Clean(d.After.GetVersion()))
		return
	}
	row(w, "ROLE", "WHAT", "RUNS", "NEW")
	for _, change := range d.Changes {
		row(w, change.Role, change.What, change.Before, change.After)
	}
	if len(d.After.New) == 0 {
		_, _ = fmt.Fprintln(w, "\nIt asks for nothing that was not decided on.")
		return
	}
	_, _ = fmt.Fprintln(w, "\nWhat was not decided on:")
	asked(w, d.After.New)
}
