//go:build soak

package e2e

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// freeze freezes the disk for so long. A process of its own thaws it, also where the test cannot: whoever waits for a frozen file system cannot be ended.
func (d disk) freeze(t *testing.T, during time.Duration) (thawed <-chan error) {
	t.Helper()
	helper := exec.Command("sh", "-c", `trap '' HUP INT TERM; fsfreeze --freeze "$1" || exit 1; echo frozen; sleep "$2"; fsfreeze --unfreeze "$1"`,
		"freeze", d.path, strconv.Itoa(int(during.Seconds())))
	stdout, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	ended, waited := make(chan error, 1), make(chan struct{})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(waited)
		ended <- helper.Wait()
	}()
	t.Cleanup(func() { <-waited })
	if line != "frozen\n" {
		t.Skipf("cannot run: the file system of the disk cannot be frozen: %v", err)
	}
	return ended
}

// TestFrozenDisk freezes the disk with all of a node on it, its own log too. The status answers all the time and says that the disk does not. No role is ended or blamed for it, and all is well
// after the thaw.
func TestFrozenDisk(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("cannot run: only root can mount a disk to freeze")
	}
	d := newImage(t, 900<<20)
	c := d.cluster(t, nil)
	c.WriteParameters(t, func(p *nodev1.Parameters) {
		setLiveness(p, soon)
		p.Directories.Run = filepath.Join(suite.base, "r-"+filepath.Base(d.path))
	})
	c.Up(t)
	before := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	for round, during := range []time.Duration{45 * time.Second, 180 * time.Second} {
		const says = "the disk does not answer"
		thawed, asked, said := d.freeze(t, during), 0, 0
		for frozen := true; frozen; {
			// It need not be known at once, nor any more when the disk thaws.
			status := c.MustReeve(t, "status").Stdout
			asked++
			if strings.Contains(status, says) {
				said++
			}
			if strings.Count(status, says) > 1 {
				t.Errorf("it says so more than once:\n%s", status)
			}
			select {
			case err := <-thawed:
				if frozen = false; err != nil {
					t.Fatalf("the disk could not be thawed: %v", err)
				}
			default:
			}
		}
		if said < asked/2 {
			t.Errorf("the disk was frozen for %s, and %d of %d answers said that it does not answer", during, said, asked)
		}
		after := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
		for role, pid := range before.PIDs() {
			if now := after.Role(role); now.PID != pid || now.Restarts > 0 {
				t.Errorf("the disk was frozen for %s, and %s, which was process %d, is %+v", during, role, pid, now)
			}
		}
		c.Await(t, patience, "the status without a problem", func(devcluster.Status) bool { return !strings.Contains(c.MustReeve(t, "status").Stdout, says) })
		for _, kind := range []string{"VolumeTakesNoWrites", "VolumeTakesWrites"} {
			c.Await(t, patience, "an event "+kind+" of each time", func(devcluster.Status) bool { return len(c.Events(t, kind, "")) > round })
		}
		for _, kind := range []string{"RoleCrashed", "RoleFailed", "RoleUnresponsive"} {
			if events := c.Events(t, kind, ""); len(events) > 0 {
				t.Errorf("the disk was frozen for %s, and there are events %s: %+v", during, kind, events)
			}
		}
	}
}
