package output

import (
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/reeveproject/reeve/core/logfile"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/logline"
)

const (
	// maxLog is how large a file of a role's log becomes, in bytes, and there are two of them: days of an ordinary role, and little enough for 64 roles on a
	// small disk.
	maxLog = 10 << 20
	// logRate is how much a log may grow in the long run, in bytes a second, and logBurst how much at once. What a role writes faster is left out: a verbose
	// role stays below, and one that writes for ever does not wear out the disk. All that a spool holds may come at once.
	logRate  = 1 << 20
	logBurst = spoolSize
	// logLeast is how much of the newest is taken however much was written, in bytes: the end of a trace. A follower is woken a hundred times a second
	// at most, and may take that each time: it is below logRate.
	logLeast = 8 << 10
)

// roleLog is the log of a role, which the core alone writes: one for each instance that is followed. It is of one goroutine.
type roleLog struct {
	log  hclog.Logger
	path string
	file *logfile.File
	// left is how much may be written at once, as of at.
	left int64
	at   time.Time
	// within says that the last line is not whole.
	within bool
	// failed says that writing failed, and was said to have.
	failed bool
}

// openRoleLog opens the log at path for appending, or makes it.
func openRoleLog(log hclog.Logger, path string) (*roleLog, error) {
	file, err := logfile.Open(path, logfile.WithLimit(maxLog))
	if err != nil {
		return nil, err
	}
	return &roleLog{log: log, path: path, file: file, left: logBurst, at: time.Now()}, nil
}

func (r *roleLog) close() error { return r.file.Close() }

// room is how much may be written now, and left then.
func (r *roleLog) room(now time.Time) int64 {
	if passed := now.Sub(r.at); passed > 0 {
		r.left, r.at = min(logBurst, r.left+int64(min(passed, time.Minute).Seconds()*logRate)), now
	}
	return max(r.left, logLeast)
}

// Write appends p. It never fails: a role is not to be left unread because its log cannot be written.
func (r *roleLog) Write(p []byte) (int, error) {
	r.left = max(0, r.left-int64(len(p)))
	r.append(p)
	return len(p), nil
}

// begin says in the log that an instance begins. What is appended until then, by whichever instance, may not end with a line.
func (r *roleLog) begin(instanceID string) {
	line := logline.Begin(instanceID, time.Now())
	if !endsWithLine(r.path) {
		line = append([]byte{'\n'}, line...)
	}
	r.append(line)
}

// endsWithLine reports whether what is in a file ends with a whole line. An empty file does.
func endsWithLine(path string) bool {
	file, err := storage.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return true
	}
	defer func() { _ = file.Close() }()
	last := []byte{'\n'}
	if info, err := file.Stat(); err == nil && info.Size() > 0 {
		_, _ = file.ReadAt(last, info.Size()-1)
	}
	return last[0] == '\n'
}

// leaveOut says in the log that so many bytes are not in it.
func (r *roleLog) leaveOut(bytes int64) {
	line := fmt.Sprintf("reeve: %d bytes are left out here: they were written faster than the log may grow\n", bytes)
	if r.within {
		line = "\n" + line
	}
	_, _ = r.Write([]byte(line))
}

func (r *roleLog) append(p []byte) {
	if len(p) == 0 {
		return
	}
	r.within = p[len(p)-1] != '\n'
	_, err := r.file.Write(p)
	if err != nil && !r.failed {
		r.log.Warn("the log of the role cannot be written; what it writes is missing there until that works again", "file", r.path, "error", err)
	}
	r.failed = err != nil
}
