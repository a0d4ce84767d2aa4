package hostile

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
)

// swap has a role put a link to the victim's socket where its own was.
func (s *scene) swap(t *testing.T, row Row, o *Outcome) {
	before := s.status.Role(row.Role).PID
	got, err := s.order(t, row.Role, row.ID, s.arguments(t, row), attemptTimeout)
	o.take(got, err)
	seen, ok := eventually.Try(s.ctx, patience, 200*time.Millisecond, func() (bool, string) {
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
	seen, ok := eventually.Try(s.ctx, patience, time.Second, func() (bool, string) {
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
		if result := s.cluster.Reeve(t, "logs", s.node, row.Role); result.Code != 0 && !strings.Contains(result.Stderr, "no log") {
			o.escape("its log cannot be read: %s", shorten(result.Stderr))
		}
		s.boundedLog(o, row.Role)
	case row.ID == "st-flood" || row.ID == "st-large":
		s.published(t, o, row.Role, row.ID == "st-flood")
	case strings.HasPrefix(row.ID, "mt-"):
		s.scrape(t, o, row.Role)
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
	unread, _ := filepath.Glob(s.cluster.Path("run", "instances", role+".*.err", "err"))
	paths = append(append(paths, unread...), s.cluster.Path("reeved.log"))
	for _, path := range paths {
		var found unix.Stat_t
		if err := unix.Stat(path, &found); err == nil && found.Blocks*512 > mostOfLog {
			o.escape("%s takes %d MiB", path, found.Blocks*512>>20)
		}
	}
}
