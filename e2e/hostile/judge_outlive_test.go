package hostile

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// leaving is a role that is taken from the node while it does what it can to stay.
type leaving struct {
	process  procfs.Process
	children []procfs.Process
	// kept is the file into which it writes what it still reaches.
	kept *os.File
	// began is when it was to be taken away, and disabled when the cluster had taken its user away.
	began, disabled time.Time
	outcome         *Outcome
}

// outlive judges what goes on after a role's end.
func (s *scene) outlive(t *testing.T, row Row) *Outcome {
	if row.ID == "outlive.cgroup" {
		return s.plain(t, row)
	}
	if s.leaving == nil {
		// All of them hold their stop until they are killed for it: they are taken away side by side.
		s.leave(t)
	}
	l := s.leaving[row.ID]
	if l.process.PID == 0 {
		return l.outcome
	}
	_, gone := eventually.Try(s.ctx, patience, 50*time.Millisecond, func() (bool, string) {
		now, err := procfs.Read(l.process.PID)
		return err != nil || now.Ended() || now.Start != l.process.Start, ""
	})
	if !gone {
		l.outcome.escape("the role runs on")
	}
	ended := time.Now()
	l.outcome.Note = fmt.Sprintf("gone within %s", time.Since(l.began).Round(100*time.Millisecond))
	// The node names the role until it has ended what the role left. As an ordinary user it cannot end all of it, and may name it for good.
	eventually.Try(s.ctx, patience, 100*time.Millisecond, func() (bool, string) { return s.refresh(t).Role(row.Role).Role == "", "" })
	for _, p := range s.remain(t, row, l) {
		l.outcome.escape("%s is left", p)
		s.cluster.KillProcess(t, p)
	}
	if l.kept != nil {
		lastUse(row, l, ended)
	}
	if row.ID == "outlive.children" {
		// As an ordinary user the chain is never caught.
		_ = os.WriteFile(s.cluster.Path("data", "roles", row.Role, "enough"), nil, 0o644)
	}
	s.answers(t, l.outcome)
	return l.outcome
}

// leave has all roles that stay do what they do for it, and then takes them from the node.
func (s *scene) leave(t *testing.T) {
	t.Helper()
	s.refresh(t)
	s.leaving = make(map[string]*leaving)
	for _, row := range outliveRows {
		if row.ID != "outlive.cgroup" && chosen(row) {
			s.leaving[row.ID] = s.cling(t, row)
		}
	}
	for _, row := range outliveRows {
		l := s.leaving[row.ID]
		if l == nil || l.process.PID == 0 {
			continue
		}
		l.began = time.Now()
		if row.ID == "outlive.store" {
			if result := s.cluster.Reeve(t, "plugin", "withdraw", "hostile", row.Role+":consensus-user"); result.Code != 0 {
				l.outcome.escape("the user cannot be withdrawn: %s", shorten(result.Stderr))
			}
			l.disabled = time.Now()
		}
		if result := s.cluster.Reeve(t, "node", "role", "remove", s.node, row.Role, "--wait=none"); result.Code != 0 {
			l.outcome.escape("the role cannot be removed: %s", shorten(result.Stderr))
		}
	}
}

// cling orders a role to do what is to let it stay. The process is the zero one if it could not.
func (s *scene) cling(t *testing.T, row Row) *leaving {
	t.Helper()
	l := &leaving{outcome: &Outcome{}}
	process, readErr := procfs.Read(s.status.Role(row.Role).PID)
	got, err := s.order(t, row.Role, row.ID, s.arguments(t, row), attemptTimeout)
	l.outcome.take(got, err)
	if readErr != nil || err != nil {
		t.Errorf("as %s, %s was not tried: %v %v", s.user, row.ID, readErr, err)
		return l
	}
	l.process = process
	for pid := range strings.FieldsSeq(got.Values["pids"]) {
		var number int
		_, _ = fmt.Sscan(pid, &number)
		if p, err := procfs.Read(number); err == nil {
			l.children = append(l.children, p)
		}
	}
	if row.ID != "outlive.children" {
		if l.kept, err = os.Open(s.cluster.Path("data", "roles", row.Role, "kept")); err != nil {
			t.Fatal(err)
		}
		if seen, ok := eventually.Try(s.ctx, patience, 50*time.Millisecond, func() (bool, string) {
			uses := usesOf(l.kept)
			return len(uses) > 0 && uses[len(uses)-1].worked, fmt.Sprintf("%d uses", len(uses))
		}); !ok {
			l.outcome.escape("it does not use the store, so nothing is tested: %s", seen)
		}
	}
	return l
}

// remain are the processes of a role that are left for good. Those that were killed with it may take a moment to end on a busy machine; a chain of processes, each of which
// starts the next, is there whenever one looks.
func (s *scene) remain(t *testing.T, row Row, l *leaving) (left []procfs.Process) {
	t.Helper()
	const looks = 5
	none := 0
	_, _ = eventually.Try(s.ctx, 5*time.Second, 100*time.Millisecond, func() (bool, string) {
		left = nil
		for _, p := range append(slices.Clone(l.children), s.strays(t, row, l.process)...) {
			if now, err := procfs.Read(p.PID); err == nil && now.Start == p.Start && !now.Ended() {
				left = append(left, now)
			}
		}
		if none++; len(left) > 0 {
			none = 0
		}
		return none == looks, ""
	})
	return left
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

// use is one use of the store, as the role noted it.
type use struct {
	at     time.Time
	worked bool
}

func usesOf(kept *os.File) (uses []use) {
	content := make([]byte, 1<<20)
	n, _ := kept.ReadAt(content, 0)
	for line := range strings.Lines(string(content[:n])) {
		var at int64
		var worked bool
		if _, err := fmt.Sscan(line, &at, &worked); err == nil {
			uses = append(uses, use{time.UnixMilli(at), worked})
		}
	}
	return uses
}

// lastUse looks when the store has last been open to a role. Whose user is withdrawn is refused while it still runs, and from then on for good. Whose role is only
// removed may still need it to end well, and has it for its grace.
func lastUse(row Row, l *leaving, ended time.Time) {
	defer l.kept.Close()
	// refused says that a use was refused after the withdrawal was acknowledged, and shut that one was since it was asked for, and none worked after that: the role may be
	// ended before the command has said that it is done.
	refused, shut := false, false
	var last time.Time
	for _, u := range usesOf(l.kept) {
		if u.worked {
			last = u.at
		}
		if u.worked && refused && row.ID == "outlive.store" {
			l.outcome.escape("the store was open again after it had refused a use")
		}
		refused = refused || !u.worked && u.at.After(l.disabled)
		shut = !u.worked && u.at.After(l.began)
	}
	l.outcome.Note += fmt.Sprintf("; its last use of the store was %s after the order", last.Sub(l.began).Round(10*time.Millisecond))
	if row.ID == "outlive.removed" {
		if late := last.Sub(ended); late > 0 {
			l.outcome.escape("it wrote to the store %s after its role was gone", late)
		}
		return
	}
	if !shut {
		l.outcome.escape("no use of the store was refused")
	}
}
