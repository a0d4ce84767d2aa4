package plugin

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// record is what a core leaves behind about an instance, for the next one: written before the process exists and again when its PID is known.
type record struct {
	versioned
	InstanceID string `json:"instanceId"`
	Role       string `json:"role"`
	UID        uint32 `json:"uid"`
	SharedUID  bool   `json:"sharedUid,omitempty"`
	// BootID is the boot of the machine in which PID and Start mean something.
	BootID string `json:"bootId"`
	// PID and Start are zero until the process is known.
	PID    int    `json:"pid,omitempty"`
	Start  uint64 `json:"start,omitempty"`
	Digest string `json:"digest"`
	// CoreStart is when the core that launched it started, in nanoseconds of the Unix epoch: for people who compare it with a log.
	CoreStart int64 `json:"coreStart"`
	// Socket is the plugin's; empty until it is known.
	Socket string `json:"socket,omitempty"`
}

const recordSuffix = ".json"

func (l *Launcher) recordPath(name string) string {
	return filepath.Join(l.instancesDir(), name+recordSuffix)
}

func (l *Launcher) writeRecord(name string, r record) error {
	r.Version, r.BootID, r.CoreStart = formatVersion, l.bootID, l.coreStart.UnixNano()
	return writeJSON(l.recordPath(name), r, 0o600)
}

func (l *Launcher) removeRecord(name string) error {
	if err := os.Remove(l.recordPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readRecords returns what the records say, and the problems of those that say nothing that this core understands.
func (l *Launcher) readRecords() (records []record, problems []error, err error) {
	entries, err := os.ReadDir(l.instancesDir())
	if err != nil {
		return nil, nil, err
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), recordSuffix) {
			continue // what an interrupted write left
		}
		var r record
		found, err := readJSON(filepath.Join(l.instancesDir(), entry.Name()), &r)
		if err != nil {
			problems = append(problems, err)
		} else if found {
			records = append(records, r)
		}
	}
	return records, problems, nil
}
