package hostile

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
	"github.com/reeveproject/reeve/e2e/internal/soak"
)

// mostOfStore is what the consensus role may have at a time, whatever other roles do: half of what it is granted.
const mostOfStore = 2 << 20 // KiB

// use performs a row that uses up the store: for seconds, and in soak for ten minutes.
func (s *scene) use(t *testing.T, row Row) *Outcome {
	o := &Outcome{}
	s.refresh(t)
	store, err := procfs.Read(s.status.Role("consensus").PID)
	if err != nil {
		t.Fatal(err)
	}
	resident := held(t, store.PID, "VmRSS:")
	before, err := s.order(t, "victim", "victim.state", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	arguments, patient := map[string]string{"seconds": "2"}, attemptTimeout
	if soak.Enabled {
		arguments, patient = map[string]string{"seconds": "600", "timeout": "660"}, attemptTimeout+10*time.Minute
	}
	got, err := s.order(t, row.Role, row.ID, arguments, patient)
	o.take(got, err)
	if got.Values["works"] != "yes" {
		t.Errorf("as %s, %s was not tried: %+v", s.user, row.ID, got.Tries)
	}
	// An attempt that is refused at once may end before the victim has written.
	var after result
	_, written := eventually.Try(s.ctx, patience, 200*time.Millisecond, func() (bool, string) {
		after, err = s.order(t, "victim", "victim.state", nil, patience)
		return err != nil || after.Values["acknowledged"] != before.Values["acknowledged"], ""
	})
	switch {
	case err != nil:
		o.escape("the victim cannot say how it is: %v", err)
	case after.Values["refusals"] != before.Values["refusals"]:
		o.escape("writes of the victim were refused: %s", after.Values["broken"])
	case !written:
		o.escape("no write of the victim was acknowledged")
	}
	o.Note = fmt.Sprintf("the victim's slowest write took %s", after.Values["slowest"])
	if now, err := procfs.Read(s.refresh(t).Role("consensus").PID); err != nil || now.PID != store.PID || now.Start != store.Start {
		o.escape("the store was ended")
	} else if most := held(t, store.PID, "VmHWM:"); most > mostOfStore {
		o.escape("the store had %d MiB of memory", most>>10)
	} else if now, ok := s.givenBack(t, store.PID, resident, row.Growth); !ok {
		o.escape("the store keeps what it has refused: it has %s, and had %d MiB before", now, resident>>10)
	} else {
		o.Note += fmt.Sprintf("; the store has had %d MiB at most", most>>10)
	}
	s.answers(t, o)
	s.askVictim(t, o)
	return o
}

// givenBack waits until a process has grown by no more than a row allows, in KiB. Go gives memory back to the machine some time after it is free.
func (s *scene) givenBack(t *testing.T, pid, before, growth int) (seen string, ok bool) {
	if growth == 0 {
		return "", true // not asked
	}
	return eventually.Try(s.ctx, patience, 200*time.Millisecond, func() (bool, string) {
		now := held(t, pid, "VmRSS:")
		return now-before <= growth, fmt.Sprintf("%d MiB", now>>10)
	})
}

// held is how much memory a process has (VmRSS:) or has had at most (VmHWM:), in KiB.
func held(t *testing.T, pid int, field string) (size int) {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			_, _ = fmt.Sscan(rest, &size)
		}
	}
	return size
}
