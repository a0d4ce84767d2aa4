package hostile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// swap has a role put a link to the victim's socket where its own was.
func (s *scene) swap(t *testing.T, row Row, o *Outcome) {
	before := s.status.Role(row.Role).PID
	got, err := s.order(t, row.Role, row.ID, s.arguments(t, row), attemptTimeout)
	o.take(got, err)
	seen, ok := eventually.Try(t.Context(), patience, 200*time.Millisecond, func() (bool, string) {
		status := s.refresh(t)
		return status.Role(row.Role).PID != before || status.Role(row.Role).State != "Ready", status.String()
	})
	if !ok {
		o.escape("the core takes the victim's socket for that of the role: %s", seen)
	}
	s.answers(t, o)
	s.askVictim(t, o)
}

// lie judges a role that breaks the protocol by itself since it was started.
func (s *scene) lie(t *testing.T, row Row) *Outcome {
	o := &Outcome{}
	var role devcluster.Role
	first := true
	seen, ok := eventually.Try(t.Context(), patience, time.Second, func() (bool, string) {
		// All of them go on at the same time: most have long done what they do.
		if !first {
			s.refresh(t)
		}
		first = false
		role = s.status.Role(row.Role)
		if strings.HasPrefix(row.Expect, "Failed or Backoff") || strings.HasPrefix(row.Expect, "ended") {
			return role.State == "Failed" || role.State == "Backoff" || role.Restarts > 0, role.State + " " + role.Reason
		}
		return role.State != "" && role.State != "Starting", role.State + " " + role.Reason
	})
	if !ok {
		o.escape("it is %s", seen)
	}
	o.Note = fmt.Sprintf("%s after %d restarts", role.State, role.Restarts)
	if i := strings.IndexAny(role.Reason, "\x1b\r\u202e\x07"); i >= 0 {
		o.escape("its reason has escapes for terminals: %q", role.Reason)
	}
	for _, endpoint := range role.Endpoints {
		if strings.ContainsAny(endpoint.Name+endpoint.Address, "\x1b\r\n\x00") {
			o.escape("its endpoint has escapes for terminals: %q", endpoint.Address)
		}
	}
	switch {
	case strings.HasPrefix(row.ID, "lg-"):
		began := time.Now()
		if result := s.cluster.Reeve(t, "logs", s.node, row.Role); result.Code != 0 && !strings.Contains(result.Stderr, "no log") {
			o.escape("its log cannot be read: %s", shorten(result.Stderr))
		} else if took := time.Since(began); took > 10*time.Second {
			o.escape("its log is read in %s", took)
		}
		s.boundedLog(o, row.Role)
	case strings.HasPrefix(row.ID, "mt-"):
		if result := s.cluster.Reeve(t, "node", "role", "list", s.node); result.Code != 0 {
			o.escape("the roles cannot be listed: %s", shorten(result.Stderr))
		}
	}
	// One look is for all: they break the protocol side by side.
	if last := lieRows[len(lieRows)-1]; row.ID == last.ID || row.ID == lieRows[0].ID {
		s.answers(t, o)
	}
	return o
}

// mostOfLog is what all logs of a role may take: what is kept beside the log that is written, and some more.
const mostOfLog = 96 << 20

// boundedLog looks how much room a role's logs take.
func (s *scene) boundedLog(o *Outcome, role string) {
	paths, _ := filepath.Glob(s.cluster.Path("data", "logs", role+"*"))
	paths = append(paths, s.cluster.Path("reeved.log"))
	for _, path := range paths {
		var found unix.Stat_t
		if err := unix.Stat(path, &found); err == nil && found.Blocks*512 > mostOfLog {
			o.escape("%s takes %d MiB", path, found.Blocks*512>>20)
		}
	}
}

// exhaust performs a row that takes what there is. The role may be ended for it.
func (s *scene) exhaust(t *testing.T, row Row) *Outcome {
	o := &Outcome{}
	s.refresh(t)
	done := make(chan struct{})
	// While it goes on the victim must be able to work.
	during := &Outcome{}
	go func() {
		defer close(done)
		got, err := s.orderQuietly(row.Role, row.ID, attemptTimeout)
		o.take(got, err)
	}()
	time.Sleep(300 * time.Millisecond)
	s.askVictim(t, during)
	<-done
	o.Escapes = append(o.Escapes, during.Escapes...)
	if progress, err := os.ReadFile(s.cluster.Path("data", "roles", row.Role, "progress")); err == nil && o.Note != "" {
		o.Note += " at " + string(progress)
		_ = os.Remove(s.cluster.Path("data", "roles", row.Role, "progress"))
	}
	s.answers(t, o)
	if strings.Contains(o.Note, errEnded.Error()) {
		s.whyEnded(t, row.Role, o)
		s.revive(t, row.Role)
	}
	if strings.HasPrefix(row.ID, "exhaust.std") {
		s.boundedLog(o, row.Role)
	}
	s.leftovers(t, row, o)
	s.askVictim(t, o)
	return o
}

// whyEnded notes what the node says of the end of a role.
func (s *scene) whyEnded(t *testing.T, role string, o *Outcome) {
	t.Helper()
	events := s.cluster.Events(t, "RoleCrashed", role)
	if len(events) == 0 {
		o.Note += "; there is no event of it"
		return
	}
	last := events[len(events)-1]
	o.Note += "; " + shorten(last.Message)
	if last.Details["out_of_memory"] != "" {
		o.Note += " (out of memory)"
	}
}

// leftovers looks for what a role has left behind in the machine's memory.
func (s *scene) leftovers(t *testing.T, row Row, o *Outcome) {
	t.Helper()
	uid := s.glutton(t)
	if s.missing[ownUID] || uid == 0 {
		return
	}
	content, _ := os.ReadFile("/proc/sysvipc/shm")
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 7 && fields[7] == fmt.Sprint(uid) {
			o.escape("shared memory of %s is left: %s", row.Role, fields[3])
		}
	}
	run, _ := filepath.EvalSymlinks(s.cluster.Path("run"))
	_ = filepath.WalkDir(run, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "filler" {
			o.escape("%s is left", path)
		}
		return nil
	})
}

func (s *scene) glutton(t *testing.T) uint32 {
	t.Helper()
	p, err := procfs.Read(s.refresh(t).Role("glutton").PID)
	if err != nil {
		return 0
	}
	return p.UID
}

// outlive judges what goes on after a role's end.
func (s *scene) outlive(t *testing.T, row Row) *Outcome {
	o := &Outcome{}
	s.refresh(t)
	arguments := s.arguments(t, row)
	process, readErr := procfs.Read(s.status.Role(row.Role).PID)
	got, err := s.order(t, row.Role, row.ID, arguments, attemptTimeout)
	o.take(got, err)
	if row.ID == "outlive.cgroup" {
		return o
	}
	if readErr != nil || err != nil {
		t.Errorf("as %s, %s was not tried: %v %v", s.user, row.ID, readErr, err)
		return o
	}
	var children []procfs.Process
	for pid := range strings.FieldsSeq(got.Values["pids"]) {
		var number int
		_, _ = fmt.Sscan(pid, &number)
		if p, err := procfs.Read(number); err == nil {
			children = append(children, p)
		}
	}
	kept := s.hold(row)
	began := time.Now()
	if result := s.cluster.Reeve(t, "node", "role", "remove", s.node, row.Role); result.Code != 0 {
		o.escape("the role cannot be removed: %s", shorten(result.Stderr))
	}
	_, gone := eventually.Try(t.Context(), patience, 50*time.Millisecond, func() (bool, string) {
		now, err := procfs.Read(process.PID)
		return err != nil || now.Ended() || now.Start != process.Start, ""
	})
	if !gone {
		o.escape("the role runs on")
	}
	ended := time.Now()
	o.Note = fmt.Sprintf("gone after %s", time.Since(began).Round(100*time.Millisecond))
	time.Sleep(500 * time.Millisecond) // for the chain of processes to show itself
	for _, p := range append(children, s.strays(t, row, process)...) {
		if now, err := procfs.Read(p.PID); err == nil && now.Start == p.Start && !now.Ended() {
			o.escape("%s is left", now)
			s.cluster.KillProcess(t, now)
		}
	}
	if kept != nil {
		s.lastUse(kept, ended, o)
	}
	s.answers(t, o)
	return o
}

// strays are processes of the role's user, or of its executable, that are no role's main process.
func (s *scene) strays(t *testing.T, row Row, of procfs.Process) []procfs.Process {
	t.Helper()
	all, err := procfs.All()
	if err != nil {
		t.Fatal(err)
	}
	var found []procfs.Process
	for _, p := range all {
		name := ""
		if len(p.Arguments) > 0 {
			name = p.Arguments[0]
		}
		sameUser := p.UID == of.UID && !s.missing[ownUID] && of.UID != uint32(os.Geteuid())
		// An ordinary user's roles all have one user: the children are known by the name under which they were started.
		child := row.ID == "outlive.children" && p.UID == of.UID && p.Executable == of.Executable && (name == "run" || name == "/sbin/init")
		if !p.Ended() && (sameUser || child) {
			found = append(found, p)
		}
	}
	return found
}

// hold opens the file into which a role writes what it still reaches.
func (s *scene) hold(row Row) *os.File {
	if row.ID != "outlive.store" {
		return nil
	}
	time.Sleep(300 * time.Millisecond)
	file, _ := os.Open(s.cluster.Path("data", "roles", row.Role, "kept"))
	return file
}

// lastUse looks when a role has last written to the store.
func (s *scene) lastUse(kept *os.File, ended time.Time, o *Outcome) {
	defer kept.Close()
	content := make([]byte, 1<<20)
	n, _ := kept.ReadAt(content, 0)
	uses := 0
	for line := range strings.Lines(string(content[:n])) {
		var at int64
		var worked bool
		if _, err := fmt.Sscan(line, &at, &worked); err != nil || !worked {
			continue
		}
		uses++
		if late := time.UnixMilli(at).Sub(ended); late > 100*time.Millisecond {
			o.escape("it wrote to the store %s after its role was gone", late)
		}
	}
	if uses == 0 {
		o.escape("it has not used the store at all: nothing was tested")
	}
}

// fill performs a row that fills the disk of the node.
func (s *scene) fill(t *testing.T, row Row) *Outcome {
	o := &Outcome{}
	if !isRoot() {
		o.Note = "cannot run: only root can make a disk to fill"
		o.Missing = append(o.Missing, "a disk to fill")
		return o
	}
	s.refresh(t)
	room, files := free(t, s.disk)
	got, err := s.orderQuietly(row.Role, row.ID, attemptTimeout)
	o.take(got, err)
	left, leftFiles := free(t, s.disk)
	o.Note += fmt.Sprintf("; of %d MiB and %d files %d MiB and %d files were left", room>>20, files, left>>20, leftFiles)
	s.answers(t, o)
	s.outside(t, o)
	s.askVictim(t, o)
	// What is in the way goes, so that what comes finds a node.
	_ = os.Remove(s.cluster.Path("data", "roles", row.Role, "filler"))
	_ = os.RemoveAll(s.cluster.Path("data", "roles", row.Role, "many"))
	again := &Outcome{}
	s.again(t, again)
	s.askVictim(t, again)
	o.Escapes = append(o.Escapes, again.Escapes...)
	if status := s.refresh(t); status.Role(row.Role).State != "Ready" {
		s.revive(t, row.Role)
	}
	return o
}
