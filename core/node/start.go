package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/reeveproject/reeve/core/storage"
)

// startVersion is the version of the format of the file with the order of the core's starts.
const startVersion = 1

// latestStart is the latest start that is believed, in nanoseconds of the Unix epoch: the year 2116. What is later is damage, and nothing could be after it.
const latestStart = 1 << 62

// startFile holds the mark of the newest start of the core on this volume.
type startFile struct {
	Version int `json:"version"`
	// Start is in nanoseconds of the Unix epoch.
	Start int64 `json:"start"`
}

// nextStart returns the time by which this start of the core is known as later than all before it: now, unless the clock was ahead of it at an earlier
// start. The store takes orders only from the newest core, so a clock that was set back must not make this one look old. A file that is
// damaged orders nothing, and is replaced. With an error, which says that the time could not be kept, it is good all the same for this start.
func nextStart(path string, now time.Time) (time.Time, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return now, fmt.Errorf("node: %w", err)
	}
	var last startFile
	if err := json.Unmarshal(content, &last); err == nil && last.Version == startVersion && now.UnixNano() <= last.Start && last.Start < latestStart {
		now = time.Unix(0, last.Start+1)
	}
	if err := storage.WriteJSON(path, startFile{Version: startVersion, Start: now.UnixNano()}, 0o600); err != nil {
		return now, fmt.Errorf("node: %w", err)
	}
	return now, nil
}
