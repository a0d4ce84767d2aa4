//go:build soak

package vm

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/vm/internal/guestapi"
	"github.com/reeveproject/reeve/e2e/vm/internal/machine"
)

// TestDiskAndClock makes a node on a disk that is not empty, stops it while it formats one, and then starts it at times at which it is not.
func TestDiskAndClock(t *testing.T) {
	t.Parallel()
	m := newSealedMachine(t, "clock")
	g := m.boot(t, "first")
	g.prepare(t)
	step(t, "not empty", func(t *testing.T) {
		g.must(t, "mkfs.ext4", "-q", machine.Volume)
		before := m.content(t, g)
		g.start(t)
		seen := g.awaitRefusal(t)
		if !strings.Contains(seen, "ext4") && !strings.Contains(seen, "empty") {
			t.Errorf("it is not said that the device is not empty: %s", seen)
		}
		if m.content(t, g) != before {
			t.Error("the disk was changed")
		}
	})
	step(t, "interrupted", func(t *testing.T) {
		g.sh(t, "dd if=/dev/zero of="+machine.Volume+" bs=1M count=32 && sync && rm -rf "+systemDirectory)
		g.start(t)
		// The process is held by its ID from the moment that it is seen.
		result, err := g.Run(t.Context(), guestapi.Command{Timeout: patience, Arguments: []string{"sh", "-c",
			fmt.Sprintf("until pids=$(pidof cryptsetup) && tr '\\0' ' ' < /proc/${pids%%%% *}/cmdline | grep -q luksFormat; do :; done; kill -KILL %d $pids", g.reeved)}})
		if err != nil || result.Code != 0 {
			t.Fatalf("luksFormat could not be interrupted: %v %s%s", err, result.Stdout, result.Stderr)
		}
		g.ended(t)
		g.start(t)
		if s := g.awaitHome(t, "after an interrupted format"); s.Storage.Kind != "luks" {
			t.Error(s.text)
		}
		g.stop(t)
	})
	g.off(t)
	m.clocks(t)
}

// content is the digest of what is on the volume's disk.
func (m *sealedMachine) content(t *testing.T, g *guest) [sha256.Size]byte {
	t.Helper()
	g.must(t, "sync")
	content, err := os.ReadFile(m.VolumeImage())
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(content)
}

// clocks starts a node whose clock is wrong, in ways that a machine without a battery or with another time zone's clock has.
func (m *sealedMachine) clocks(t *testing.T) {
	t.Helper()
	g := boot(t, m.Machine, machine.Options{TPM: "first", Parameters: m.parameters, Clock: time.Date(1970, 1, 1, 0, 1, 0, 0, time.UTC)})
	if year := strings.TrimSpace(g.must(t, "date", "-u", "+%Y")); year != "1970" {
		t.Fatalf("the machine's clock is not at 1970, but in %s", year)
	}
	step(t, "1970", func(t *testing.T) {
		g.start(t)
		g.isWrong(t)
		g.heals(t, time.Now())
	})
	for _, wrong := range []struct {
		name string
		off  time.Duration
	}{{"an hour behind", -time.Hour}, {"an hour ahead", time.Hour}} {
		step(t, wrong.name, func(t *testing.T) {
			g.setClock(t, time.Now().Add(wrong.off))
			g.start(t)
			// Certificates are valid an hour before they were made: it is Home, or says why not. What it gets then must do when the time is set right.
			s := g.await(t, "Home, or a state that names the clock", func(s status) bool { return s.home() || namesClock(s) })
			t.Logf("%s: %s: %s", wrong.name, s.Membership.State, s.Membership.Reason)
			g.heals(t, time.Now())
		})
	}
	step(t, "off for years", func(t *testing.T) {
		g.setClock(t, time.Now().AddDate(3, 0, 0))
		g.start(t)
		g.awaitHome(t, "off for three years")
		g.stop(t)
	})
	g.off(t)
}

func (g *guest) setClock(t *testing.T, now time.Time) {
	t.Helper()
	if err := g.SetClock(t.Context(), now); err != nil {
		t.Fatal(err)
	}
}

// namesClock says whether the reason of the membership's state is the clock.
func namesClock(s status) bool {
	return strings.Contains(s.Membership.Reason, "this machine's clock is wrong")
}

// isWrong waits until the node says that its clock is.
func (g *guest) isWrong(t *testing.T) {
	t.Helper()
	s := g.await(t, "a state that names the clock", namesClock)
	if s.Membership.State != "Split" || s.Storage.State != "Open" {
		t.Errorf("with a wrong clock: %s", s.text)
	}
	t.Logf("with a wrong clock: %s: %s", s.Membership.State, s.Membership.Reason)
}

// steady is how long a node must stay Home for what was wrong to be over, by its own clock: several heartbeats.
const steady = 15 * time.Second

// heals sets the time right, waits until the node has taken note of it and is Home, and stops it.
func (g *guest) heals(t *testing.T, now time.Time) {
	t.Helper()
	g.setClock(t, now)
	g.awaitHome(t, "the time is right")
	// For good, and not until it asks the cluster the next time.
	g.awaitFor(t, "Home for "+steady.String(), steady, status.home)
	if s := g.ask(t); !s.home() {
		t.Errorf("what it says of itself when it is asked is another thing: %s", s.text)
	}
	g.stop(t)
}

// awaitRefusal waits until reeved says that it does not go on: by its end, or by its status.
func (g *guest) awaitRefusal(t *testing.T) string {
	t.Helper()
	for {
		if g.run(t, "", "kill", "-0", fmt.Sprint(g.reeved)).Code != 0 {
			g.ended(t)
			return g.log(t)
		}
		s, ok, err := g.latest(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case ok && s.Storage.Problem != "":
			g.stop(t)
			return s.Storage.Problem
		case g.watch.uptime > patience:
			t.Fatalf("reeved does not refuse: %s", s.text)
		}
		time.Sleep(look)
	}
}
