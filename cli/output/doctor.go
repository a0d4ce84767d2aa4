package output

import (
	"fmt"
	"io"
	"time"
)

// Doctor is the document of `reeve doctor`.
type Doctor struct {
	// Runnable says whether a node can run on this machine at all.
	Runnable bool    `json:"runnable"`
	Checks   []Check `json:"checks"`
}

// Check is one thing that was looked at.
type Check struct {
	// Name is stable, such as "landlock".
	Name string `json:"name"`
	// Level is "ok", "warning" (a node runs, with a consequence) or "missing" (a power is not there).
	Level string `json:"level"`
	// Essential says that no node can run while the level is "missing".
	Essential bool `json:"essential"`
	// Found is what was found.
	Found string `json:"found"`
	// Consequence is what that means for a node; empty where the level is "ok".
	Consequence string `json:"consequence"`
	// Advice is what to do; empty where the level is "ok".
	Advice string `json:"advice"`
}

func (d Doctor) table(w io.Writer, _ time.Time) {
	row(w, "CHECK", "LEVEL", "FOUND")
	for _, check := range d.Checks {
		row(w, check.Name, check.Level, check.Found)
	}
	for _, check := range d.Checks {
		if check.Level == "ok" {
			continue
		}
		_, _ = fmt.Fprintf(w, "\n%s: %s\n", Clean(check.Name), Clean(check.Consequence))
		if check.Advice != "" {
			_, _ = fmt.Fprintf(w, "  %s\n", Clean(check.Advice))
		}
	}
	verdict := "A node can run on this machine."
	if !d.Runnable {
		verdict = "No node can run on this machine as it is."
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", verdict)
}
