//go:build soak

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestRemitFullDisk has a role fill the node's volume: it is stopped, by its name, and no other loses anything.
func TestRemitFullDisk(t *testing.T) {
	t.Parallel()
	if !isRoot() {
		t.Skip("cannot run: only root can mount a disk to fill")
	}
	d := newImage(t, 900<<20)
	c := d.cluster(t, nil)
	c.WriteParameters(t, func(p *nodev1.Parameters) { p.Directories.Run = filepath.Join(suite.base, "r-"+filepath.Base(d.path)) })
	c.Up(t)
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "writer", nil))
	c.MustReeve(t, "node", "role", "add", "self", "writer")
	before := addTenant(t, c, "glutton", "user=glutton")
	writing := startLoad(t, before.Role("writer").URL())
	writing.await(t, c, writesBetween)
	mustTell(t, before, "glutton", post, "fill")
	status := c.Await(t, patience, "the glutton stopped since it filled the disk", func(s devcluster.Status) bool {
		role := s.Role("glutton")
		return role.PID == 0 && role.State != "Ready" && strings.Contains(role.Reason, "disk")
	})
	events := c.Events(t, "RoleFilledDisk", "")
	if len(events) != 1 || events[0].Role != "glutton" || events[0].Details["bytes"] == "" {
		t.Errorf("the events are %+v, want one, of the glutton", events)
	}
	writing.await(t, c, writing.count()+writesBetween)
	for _, role := range append([]string{"writer"}, devcluster.DefaultRoles...) {
		if is, was := status.Role(role), before.Role(role); is.PID != was.PID {
			t.Errorf("%s is %+v, before %+v", role, is, was)
		}
	}
	if homeless := c.Events(t, "MembershipChanged", ""); len(homeless) > 0 && homeless[len(homeless)-1].Details["to"] != "Home" {
		t.Errorf("the node was not Home all the time: %+v", homeless)
	}
	writing.stop()
	writing.done.Wait()
	nothingLost(t, c.AwaitUp(t, patience, append([]string{"writer"}, devcluster.DefaultRoles...)...), writing)
	// With less data it runs again.
	if err := os.Remove(c.Path("data", "roles", "glutton", "fill")); err != nil {
		t.Fatal(err)
	}
	c.AwaitUp(t, patience, "glutton")
}

// newImage mounts a disk of a size of its own: a file system in a file.
func newImage(t *testing.T, size int64) disk {
	t.Helper()
	d := disk{filepath.Join(suite.base, fmt.Sprintf("m%d", disks.Add(1)))}
	image := d.path + ".img"
	if err := os.Mkdir(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, d.path}} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("cannot run: this root cannot make a disk to fill: %v: %s", err, output)
		}
	}
	t.Cleanup(func() {
		if output, err := exec.Command("umount", "-l", d.path).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
		_ = os.Remove(image)
	})
	if err := os.Chmod(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}
