package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// plain performs a row whose tries say themselves whether they were refused.
func (s *scene) plain(t *testing.T, row Row) *Outcome {
	o := &Outcome{}
	if row.ID == "sockets.swap" {
		s.swap(t, row, o)
		return o
	}
	arguments := s.arguments(t, row)
	got, err := s.order(t, row.Role, row.ID, arguments, attemptTimeout)
	if s.core.UID != 0 {
		got.Tries = o.withoutBounds(got.Tries)
	}
	o.take(got, err)
	switch {
	case row.ID == "binary.memfd":
		_ = os.Remove(arguments["copy"])
		if got.Values["ran"]+got.Values["refused"] == "" {
			t.Errorf("as %s, %s was not tried: %+v", s.user, row.ID, got.Tries)
		}
	case errors.Is(err, errEnded):
		s.revive(t, row.Role)
	case strings.HasPrefix(row.ID, "keys.") || row.ID == "host.climb" || row.ID == "host.links":
		// Refusals show nothing if the connection did not work at all.
		if got.Values["works"] != "yes" {
			t.Errorf("as %s, %s was not tried: %+v", s.user, row.ID, got.Tries)
		}
	}
	if slices.Contains([]string{"keys.lease", "keys.leases", "keys.quota", "keys.write", "host.streams", "host.slow", "host.garbage", "sockets.lend"}, row.ID) {
		s.askVictim(t, o)
		s.answers(t, o)
	}
	return o
}

// take takes what a role said of an attempt.
func (o *Outcome) take(got result, err error) {
	if err != nil {
		o.Note += err.Error()
		// What was not tried has not held.
		if !errors.Is(err, errEnded) {
			o.escape("not known: %v", err)
		}
	}
	for _, try := range got.Tries {
		o.Tries++
		if try.Through {
			o.escape("%s", try.What)
		} else {
			o.answer(shorten(try.Answer))
		}
	}
}

// withoutBounds leaves out what a role of an ordinary user's says of its bounding set, and says why.
func (o *Outcome) withoutBounds(tries []try) []try {
	return slices.DeleteFunc(tries, func(t try) bool {
		if strings.Contains(t.What, "CapBnd ") {
			o.Note = "the bounding set is not asserted: without capabilities, with no_new_privs and no file capabilities it gives nothing"
			return true
		}
		return false
	})
}

func shorten(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > 60 {
		return text[:60] + "…"
	}
	return text
}

// outside looks whether the node is as it was, whatever anybody says.
func (s *scene) outside(t *testing.T, o *Outcome) {
	t.Helper()
	for what, was := range map[string]*procfs.Process{"the core": &s.core, "the victim": &s.victim} {
		if now, err := procfs.Read(was.PID); err != nil || now.Start != was.Start || now.Ended() {
			o.escape("%s, %s, has ended", what, was)
			s.again(t, o)
		}
	}
	s.sameFiles(o)
	s.sameMounts(t, o)
	if name, _ := os.Hostname(); name == "hostile-was-here" {
		o.escape("the machine has another name")
	}
	for _, directory := range []string{"/etc", "/tmp", "/var/tmp", "/dev/shm", "/usr/local/bin", "/run", "/"} {
		if _, err := os.Lstat(filepath.Join(directory, "hostile-was-here")); err == nil {
			o.escape("there is a file in %s", directory)
		}
	}
}

// again waits until everything runs again, for the rows that come, and notes what is so from now on.
func (s *scene) again(t *testing.T, o *Outcome) {
	t.Helper()
	look := func() (bool, string) {
		result := s.cluster.Reeve(t, "status", "-o", "json")
		status, err := devcluster.ParseStatus(result.Stdout)
		if result.Code != 0 || err != nil {
			return false, result.String()
		}
		s.status = status
		return status.Up(append([]string{"victim"}, devcluster.DefaultRoles...)...), status.String()
	}
	if seen, ok := eventually.Try(s.ctx, patience, 100*time.Millisecond, look); !ok {
		o.escape("the node does not come back")
		t.Fatalf("the node does not come back: %s", seen)
	}
	s.core = s.cluster.Core(t)
	var err error
	if s.victim, err = procfs.Read(s.status.Role("victim").PID); err != nil {
		t.Fatal(err)
	}
	s.learn(t)
}

// answers looks whether the core answers, and whether the node is Home with the victim Ready.
func (s *scene) answers(t *testing.T, o *Outcome) {
	t.Helper()
	result := s.cluster.Reeve(t, "status", "-o", "json")
	status, err := devcluster.ParseStatus(result.Stdout)
	switch {
	case result.Code != 0 || err != nil:
		o.escape("the core does not answer: %s", shorten(result.Stderr))
	case !status.Up("victim", "curator", "consensus"):
		o.escape("the node is not well: it is %s (%s), the store %+v, the cluster API %+v, the victim %+v", status.Membership.State, status.Membership.Reason,
			status.Role("consensus"), status.Role("curator"), status.Role("victim"))
	default:
		s.status = status
	}
	if size, err := residentSize(s.core.PID); err == nil && size > mostOfCore {
		o.escape("the core has %d MiB of memory", size>>20)
	}
}

// mostOfCore is what the core may need at most, whatever roles do: several times what it needs with so many roles in peace.
const mostOfCore = 512 << 20

func residentSize(pid int) (int, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0, errors.New("statm is empty")
	}
	pages, err := strconv.Atoi(fields[1])
	return pages * os.Getpagesize(), err
}

// askVictim asks the victim whether everything is as it was, above all whether the store has every write that it has acknowledged.
func (s *scene) askVictim(t *testing.T, o *Outcome) {
	t.Helper()
	got, err := s.order(t, "victim", "victim.check", nil, patience)
	if err != nil {
		o.escape("the victim cannot say how it is: %v", err)
	}
	for _, try := range got.Tries {
		o.escape("the victim says: %s", shorten(try.What)+rest(try.What))
	}
	if len(got.Tries) == 0 {
		return
	}
	_, _ = s.order(t, "victim", "victim.renew", nil, patience)
	if now, err := s.order(t, "victim", "victim.state", nil, patience); err == nil {
		s.known = now.Values
	}
}

func rest(text string) string {
	if len(text) > 60 {
		return " " + strings.ToValidUTF8(text[60:min(len(text), 200)], "?")
	}
	return ""
}

// revive waits until a role that has ended runs again.
func (s *scene) revive(t *testing.T, role string) {
	t.Helper()
	before := s.status.Role(role).PID
	s.cluster.Reeve(t, "node", "role", "restart", s.node, role)
	s.status = s.cluster.Await(t, patience, role+" runs again", func(status devcluster.Status) bool {
		return status.Role(role).State == "Ready" && status.Role(role).PID != before
	})
}
