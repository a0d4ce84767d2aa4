package roles

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/limits"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// historyVersion is the version of the files of failures. One of another version is not guessed at.
	historyVersion = 1
	historySuffix  = ".json"
	// maxHistory is how large such a file is at most, in bytes. The largest budget takes a tenth of it.
	maxHistory = 512 << 10
	// maxCounted is how many failures are counted at most: more than a budget can hold.
	maxCounted = 10_000

	// What a failure says at most. A whole one then has less than 4 KiB.
	maxCause = 1 << 10
	maxLines = 8
	maxLine  = 256
)

// history is what is known of the failures of one role: those that its crash budget counts, whether it was given up, and the last one. It is on disk
// before anybody is shown it, so that a core that starts again goes on with it. A disk that does not take it is reported, and the history then
// is only as old as the core.
type history struct {
	log hclog.Logger
	// path is empty if nothing is kept.
	path, boot string
	writeFile  func(path string, content []byte, mode fs.FileMode) error

	mu sync.Mutex
	historyState
	// due says that the file is older than what is known.
	due bool

	// disk is held while the file is written or removed. mu never is: every plan needs what is known, and a disk that hangs must not hold up other roles.
	disk sync.Mutex
	// unkept is why the file is not what is known; it is reported once.
	unkept string
}

// historyState is what is kept.
type historyState struct {
	// print is the hash of the fingerprint of what failed; what is counted was that.
	print   string
	counted []time.Time // the oldest first
	// givenUp says that what has this print is not started again.
	givenUp bool
	// last is nil if the role never failed. It is never changed.
	last *clusterv1.Failure
	// versions is what the versions of the plugin came to on this node; it outlasts the machine's boots.
	versions versions
}

// openHistory reads what is kept of a role. What cannot be read is reported, and is as if it were not there.
func openHistory(c *Config, role string, log hclog.Logger) *history {
	h := &history{log: log, boot: c.BootID, writeFile: storage.WriteFile}
	if c.writeFile != nil {
		h.writeFile = c.writeFile
	}
	if c.FailuresDir == "" || !identity.ValidName(role) {
		return h
	}
	h.path = filepath.Join(c.FailuresDir, role+historySuffix)
	content, err := storage.ReadSmall(h.path, maxHistory)
	if errors.Is(err, fs.ErrNotExist) {
		return h
	}
	if err == nil {
		h.historyState, err = parseHistory(content, h.boot, time.Now())
	}
	if h.givenUp {
		log.Warn("failed too often before this core started", "last", h.last.GetCause())
	}
	if err != nil {
		log.Warn("what was kept of the role's failures cannot be read; its crash budget begins anew", "file", h.path, "error", err)
	}
	return h
}

// historyFile is a history on disk.
type historyFile struct {
	Version int    `json:"version"`
	BootID  string `json:"bootId"`
	// Print is that of what failed.
	Print   string      `json:"print,omitempty"`
	Counted []time.Time `json:"counted,omitempty"`
	GivenUp bool        `json:"givenUp,omitempty"`
	// Last is a reeve.cluster.v1.Failure in the JSON of protobuf.
	Last json.RawMessage `json:"last,omitempty"`
	// Good, Back and Past are as in versions; Back is a reeve.cluster.v1.RolledBack in the JSON of protobuf.
	Good string          `json:"good,omitempty"`
	Back json.RawMessage `json:"back,omitempty"`
	Past bool            `json:"past,omitempty"`
}

// parseHistory reads a history of a boot of the machine. Of one of another boot only the last failure counts.
func parseHistory(content []byte, boot string, now time.Time) (historyState, error) {
	var file historyFile
	if err := storage.ParseJSON(content, historyVersion, &file); err != nil {
		return historyState{}, err
	}
	var s historyState
	if len(file.Last) > 0 && string(file.Last) != "null" {
		last := new(clusterv1.Failure)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(file.Last, last); err != nil {
			return historyState{}, fmt.Errorf("last: %w", err)
		}
		s.last = bounded(last)
	}
	var err error
	if s.versions, err = parseVersions(file); err != nil {
		return historyState{}, err
	}
	if file.BootID != boot || len(file.Counted) > maxCounted {
		return s, nil
	}
	s.print = file.Print
	for _, at := range file.Counted {
		if at.After(now) {
			at = now // the clock was set back
		}
		s.counted = append(s.counted, at)
	}
	slices.SortFunc(s.counted, time.Time.Compare)
	// Without a failure there is nothing to say why.
	s.givenUp = file.GivenUp && s.last != nil
	return s, nil
}

// bounded returns a failure as it may be shown.
func bounded(f *clusterv1.Failure) *clusterv1.Failure {
	f = proto.CloneOf(f)
	f.Cause = shownText(f.GetCause(), maxCause)
	f.Signal, f.InstanceId = cleanText(f.GetSignal(), limits.Name), cleanText(f.GetInstanceId(), maxLine)
	f.Lines = f.GetLines()[:min(len(f.GetLines()), maxLines)]
	for n, line := range f.GetLines() {
		f.Lines[n] = cleanText(line, maxLine)
	}
	if f.GetTime().CheckValid() != nil {
		f.Time = nil
	}
	if f.GetWindow().CheckValid() != nil {
		f.Window = nil
	}
	return f
}

// shownText is a reason of at most so many bytes as it may be shown. Joined errors have lines.
func shownText(text string, size int) string {
	return cleanText(strings.ReplaceAll(text, "\n", "; "), size)
}

func cleanText(text string, size int) string {
	return limits.Cut(limits.Clean(limits.Cut(text, size)), size)
}

func printOf(fingerprint string) string {
	sum := sha256.Sum256([]byte(fingerprint))
	return hex.EncodeToString(sum[:])
}

// lastFailure is nil if there was none.
func (h *history) lastFailure() *clusterv1.Failure {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// gaveUp reports whether what has this fingerprint was given up. If something else was, that is forgotten: it is not wanted any more.
func (h *history) gaveUp(fingerprint string) bool {
	h.mu.Lock()
	if h.givenUp && h.print != printOf(fingerprint) {
		h.forget()
	}
	givenUp, due := h.givenUp, h.due
	h.mu.Unlock()
	if due {
		h.save()
	}
	return givenUp
}

// count takes a failure into account, and returns it as it is shown. spent says that it is more than the budget allows: the role is then given up.
func (h *history) count(failure *clusterv1.Failure, fingerprint string, budget Budget) (shown *clusterv1.Failure, spent bool) {
	defer h.save()
	h.mu.Lock()
	defer h.mu.Unlock()
	if print := printOf(fingerprint); h.print != print {
		h.print, h.counted = print, nil
	}
	now := failure.GetTime().AsTime()
	h.counted = append(h.within(now, budget.Window), now)
	// One more than allowed is as good as any more.
	h.counted = h.counted[max(0, len(h.counted)-budget.Failures-1):]
	h.givenUp = len(h.counted) > budget.Failures
	h.note(failure, budget)
	return h.last, h.givenUp
}

// mention shows a failure that the budget does not count.
func (h *history) mention(failure *clusterv1.Failure, budget Budget) *clusterv1.Failure {
	defer h.save()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted = h.within(failure.GetTime().AsTime(), budget.Window)
	h.note(failure, budget)
	return h.last
}

// excuse shows a failure that the budget does not count, since the node lacks something. Nor does it count those any more that were recently, when the node may not have known that yet. A role that was given
// up for those is not any more.
func (h *history) excuse(failure *clusterv1.Failure, budget Budget) *clusterv1.Failure {
	defer h.save()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted = slices.DeleteFunc(h.within(time.Now(), budget.Window), recently)
	h.givenUp = false
	h.note(failure, budget)
	return h.last
}

// forgetLate no longer counts the failures that were recently, and reports whether the role was given up for those. That is saved with the next failure: the disk may be what the node lacks.
func (h *history) forgetLate() (givenUp bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted = slices.DeleteFunc(h.counted, recently)
	return h.givenUp
}

// countsLately reports whether a failure counts that was recently.
func (h *history) countsLately() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last != nil && slices.ContainsFunc(h.counted, recently)
}

func (h *history) within(now time.Time, window time.Duration) []time.Time {
	var counted []time.Time
	for _, at := range h.counted {
		if at.After(now) {
			at = now // the clock was set back
		}
		if now.Sub(at) < window {
			counted = append(counted, at)
		}
	}
	return counted
}

func (h *history) note(failure *clusterv1.Failure, budget Budget) {
	failure.Failures, failure.Budget, failure.Window = uint32(len(h.counted)), uint32(budget.Failures), durationpb.New(budget.Window)
	h.last, h.due = bounded(failure), true
}

// clear gives the role its whole budget back, and has a version tried again that the node went back from; it reports whether there is such a one.
func (h *history) clear() (tryAgain bool) {
	defer h.save()
	h.mu.Lock()
	defer h.mu.Unlock()
	if tryAgain = h.versions.gone(); tryAgain {
		h.versions.back, h.due = nil, true
	}
	h.forget()
	return tryAgain
}

func (h *history) forget() {
	if h.givenUp || len(h.counted) > 0 {
		h.givenUp, h.counted, h.due = false, nil, true
	}
}

// remove forgets the role: it is not desired any more, and would be a new one if it were again.
func (h *history) remove() {
	h.disk.Lock()
	defer h.disk.Unlock()
	h.mu.Lock()
	h.historyState, h.due = historyState{}, false
	h.mu.Unlock()
	if h.path == "" {
		return
	}
	if err := os.Remove(h.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.log.Warn("the failures of a role that is not desired any more cannot be removed", "file", h.path, "error", err)
	}
}

// save writes the file if it is older than what is known. It returns when all that was known by then is on disk, or cannot be: the supervision goes on without it.
func (h *history) save() {
	h.disk.Lock()
	defer h.disk.Unlock()
	h.mu.Lock()
	known, due := h.historyState, h.due
	h.due = false
	h.mu.Unlock()
	if !due || h.path == "" {
		return
	}
	err := h.keep(known)
	switch {
	case err == nil:
		h.unkept = ""
	case h.unkept != err.Error():
		h.unkept = err.Error()
		h.log.Error("the failures of the role cannot be kept; if the core starts again its crash budget is an older one", "file", h.path, "error", err)
	}
}

func (h *history) keep(known historyState) error {
	file := historyFile{Version: historyVersion, BootID: h.boot, Print: known.print, Counted: known.counted, GivenUp: known.givenUp}
	if err := known.versions.keep(&file); err != nil {
		return err
	}
	if known.last != nil {
		var err error
		if file.Last, err = protojson.Marshal(known.last); err != nil {
			return err
		}
	}
	content, err := json.Marshal(file)
	if err != nil {
		return err
	}
	return h.writeFile(h.path, append(content, '\n'), 0o600)
}

// openHistories makes the directory of the histories.
func openHistories(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// sweepHistories removes the histories of roles that are not desired, and what interrupted writes left.
func sweepHistories(dir string, desired map[string]bool) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		role, whole := strings.CutSuffix(entry.Name(), historySuffix)
		if whole && desired[role] || !whole && !interrupted(entry.Name()) {
			continue
		}
		err = errors.Join(err, os.Remove(filepath.Join(dir, entry.Name())))
	}
	return err
}

// interrupted reports whether a name is one that an atomic write gives to a file before it is whole: a dot, the later name and a number.
func interrupted(name string) bool {
	_, number, ok := strings.Cut(name, historySuffix)
	_, err := strconv.ParseUint(number, 10, 64)
	return ok && strings.HasPrefix(name, ".") && err == nil
}
