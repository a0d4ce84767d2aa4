package hostile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// exhaust performs a row that takes what there is. The role may be ended for it.
func (s *scene) exhaust(t *testing.T, row Row) *Outcome {
	o := &Outcome{}
	s.refresh(t)
	pid := s.pidOf(row.Role)
	order, err := s.place(row.Role, row.ID, nil)
	var got result
	if err == nil {
		s.awaitTaken(row.Role, order, pid)
		// While it goes on the victim must be able to work.
		s.askVictim(t, o)
		got, err = s.await(row.Role, order, pid, attemptTimeout)
	}
	o.take(got, err)
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
	ended := len(s.cluster.Events(t, "RoleCrashed", "consensus"))
	got, err := s.exchange(row.Role, row.ID, s.pidOf(row.Role), nil, attemptTimeout)
	o.take(got, err)
	left, leftFiles := free(t, s.disk)
	o.Note += fmt.Sprintf("; of %d MiB and %d files %d MiB and %d files were left", room>>20, files, left>>20, leftFiles)
	s.outside(t, o)
	// The store ends if it finds no room in the moment at which it needs some (decision 0024). It comes back before anybody else makes room.
	s.again(t, o)
	s.answers(t, o)
	s.askVictim(t, o)
	if now := len(s.cluster.Events(t, "RoleCrashed", "consensus")); now > ended {
		o.Note += fmt.Sprintf("; the store ended %d times for want of room and came back", now-ended)
	}
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
