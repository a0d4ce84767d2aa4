package access

import (
	"fmt"
	"time"

	"github.com/reeveproject/reeve/core/storage"
)

// startVersion is the version of the format of the start file.
const startVersion = 1

// latestStart is the latest start that is believed, in nanoseconds of the Unix epoch: the year 2116. What is later is damage, and nothing could be after it.
const latestStart = 1 << 62

// startFile holds the newest start of the core on this volume.
type startFile struct {
	Version int `json:"version"`
	// Start is in nanoseconds of the Unix epoch.
	Start int64 `json:"start"`
}

// NextStart returns a time for this start of the core that is later than that of every earlier start: now, unless the clock was ahead at an earlier
// start. The store obeys only the newest core, so a clock that was set back must not make this core look old. A damaged file counts for nothing and
// is replaced. If NextStart returns an error, it could not write the file; the time is good for this start all the same.
func NextStart(path string, now time.Time) (time.Time, error) {
	var last startFile
	if storage.ReadJSON(path, startVersion, &last) == nil && now.UnixNano() <= last.Start && last.Start < latestStart {
		now = time.Unix(0, last.Start+1)
	}
	if err := storage.WriteJSON(path, startFile{Version: startVersion, Start: now.UnixNano()}, 0o600); err != nil {
		return now, fmt.Errorf("access: %w", err)
	}
	return now, nil
}
