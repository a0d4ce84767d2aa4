package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	"github.com/reeveproject/reeve/e2e/internal/softtpm"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// damage is what becomes of a file.
type damage struct {
	name string
	do   func(content []byte) []byte
}

// damages are those of every file. One that root cannot read is a directory in its place.
var damages = []damage{
	{"missing", nil},
	{"unreadable", nil},
	{"empty", func([]byte) []byte { return nil }},
	{"truncated", func(content []byte) []byte { return content[:len(content)/2] }},
	{"a bit flipped", func(content []byte) []byte {
		flipped := bytes.Clone(content)
		flipped[len(flipped)*2/3] ^= 4
		return flipped
	}},
	{"of a future version", func(content []byte) []byte {
		for _, version := range []string{`"version": 3`, `"version": 2`, `"version": 1`, `"version":3`, `"version":2`, `"version":1`} {
			if bytes.Contains(content, []byte(version)) {
				return bytes.Replace(content, []byte(version), []byte(version[:len(version)-1]+"99"), 1)
			}
		}
		return bytes.Replace(content, []byte("age-encryption.org/v1"), []byte("age-encryption.org/v9"), 1)
	}},
}

// apply damages a file.
func (d damage) apply(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var err error
	switch {
	case d.do != nil:
		err = os.WriteFile(path, d.do(content), 0o400)
	case d.name == "unreadable":
		err = os.Mkdir(path, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSealedFilesDamaged damages every file of system/, in every way: the node says which it is, formats nothing, and comes back as the node that it was: by
// itself, by the owner's recovery key, or by the file as it was.
func TestSealedFilesDamaged(t *testing.T) {
	t.Parallel()
	all := map[string][]string{
		"file": {"configuration.json", "volume-key.json", "recovery.age", "recovery.age.sha256", "consumed.json"},
		"tpm2": {"configuration.json", "volume-key.json", "cuk.json"},
	}
	if !soak.Enabled {
		all = map[string][]string{"file": {"configuration.json"}}
	}
	for sealer, files := range inOrder(all) {
		for _, file := range files {
			t.Run(file+" "+sealer, func(t *testing.T) {
				t.Parallel()
				var edit []func(*nodev1.Parameters)
				if sealer == "tpm2" {
					edit = append(edit, by(softtpm.Start(t, suite.base)))
				}
				damageAll(t, newSealed(t, append(edit, few)...), file, sealer)
			})
		}
	}
}

// damageAll damages one file of a node in every way.
func damageAll(t *testing.T, c *devcluster.Cluster, file, sealer string) {
	first := startUp(t, c, fewRoles...)
	stopCore(t, c)
	uuid := fileSystem(t, c)
	for _, d := range damages {
		if !soak.Enabled && d.name != "missing" && d.name != "a bit flipped" {
			continue
		}
		path := c.Path("system", file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		spare, err := os.ReadFile(c.Path("system", "recovery.age"))
		if err != nil {
			t.Fatal(err)
		}
		image := digest(t, c.Image())
		d.apply(t, path, content)
		from := len(c.Log(t))
		core := c.StartCore(t, "")
		how := outcome(t, c, core)
		t.Logf("%s, %s: %s", file, d.name, how)
		said := c.Log(t)[from:] + how.String()
		// The recovery file and what parameters were used for are not needed for a start, and what is wrong with them is told where they are asked for.
		if how.state != "up" && file != "recovery.age" && file != "recovery.age.sha256" && file != "consumed.json" && !strings.Contains(said, path) && !strings.Contains(said, file) {
			t.Errorf("%s, %s: it does not say so: %s\n%s", file, d.name, how, said)
		}
		if how.state != "up" && digest(t, c.Image()) != image {
			t.Errorf("%s, %s: the image was changed", file, d.name)
		}
		restore := func() {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o400); err != nil {
				t.Fatal(err)
			}
		}
		switch how.state {
		case "ended":
			restore()
			core = c.StartCore(t, "")
			if how = outcome(t, c, core); how.state == "ended" {
				t.Fatalf("%s, %s, and put back: %s", file, d.name, how)
			}
			fallthrough
		case "locked":
			result := c.Unlock(t, c.RecoveryKey())
			if result.Code != 0 && how.state == "locked" && strings.HasPrefix(file, "recovery.age") {
				if !strings.Contains(result.Stderr, "recovery.age") {
					t.Errorf("%s, %s: unlock does not name the file: %s", file, d.name, result)
				}
				// A copy of it.
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				rest := c.Path("system", "recovery.age")
				if err := os.RemoveAll(rest); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(rest, spare, 0o400); err != nil {
					t.Fatal(err)
				}
				result = c.Unlock(t, c.RecoveryKey())
			}
			if result.Code != 0 && how.state != "up" {
				t.Errorf("%s, %s: %s", file, d.name, result)
				restore()
				c.Unlock(t, c.RecoveryKey())
			}
		}
		after := c.AwaitUp(t, patience, fewRoles...)
		sameNode(t, first, after)
		if fileSystem(t, c) != uuid {
			t.Fatalf("%s, %s: the volume was formatted", file, d.name)
		}
		stopCore(t, c)
		// What is no file the node leaves to its owner, and consumed.json once it is a member.
		info, err := os.Stat(path)
		left := err != nil || !info.Mode().IsRegular()
		if !left && d.do != nil {
			found, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			left = bytes.Equal(found, d.do(content)) && !bytes.Equal(found, content)
		}
		if left {
			t.Logf("%s, %s: it was not written anew", file, d.name)
			restore()
		}
	}
}

// ending is what became of a core that was started.
type ending struct {
	// state is "up", "locked" or "ended".
	state  string
	status devcluster.Status
}

func (e ending) String() string { return e.state + " " + e.status.String() }

// outcome waits until it is clear what becomes of a core.
func outcome(t *testing.T, c *devcluster.Cluster, core *devcluster.Running) ending {
	t.Helper()
	var e ending
	eventually.True(t, patience, "the core has ended, waits for its owner, or is up", func() (bool, string) {
		select {
		case <-core.Done():
			e.state = "ended"
			return true, ""
		default:
		}
		result := c.Reeve(t, "status", "-o", "json")
		if result.Code != 0 {
			return false, result.String()
		}
		var err error
		if e.status, err = devcluster.ParseStatus(result.Stdout); err != nil {
			return false, err.Error()
		}
		switch {
		case e.status.Up(fewRoles...):
			e.state = "up"
		case e.status.Storage.State == "Locked" && e.status.Storage.Problem != "":
			e.state = "locked"
		}
		return e.state != "", e.status.String()
	})
	return e
}

// TestSealedImageDamaged damages the image of a volume, or has it used by another: the node says so, and makes no other.
func TestSealedImageDamaged(t *testing.T) {
	t.Parallel()
	c := newSealed(t, few)
	first := startUp(t, c, fewRoles...)
	stopCore(t, c)
	away := c.Image() + ".away"
	refused := func(what string, says ...string) {
		t.Helper()
		before, from := digest(t, c.Image()), len(c.Log(t))
		core := c.StartCore(t, "")
		how := outcome(t, c, core)
		switch how.state {
		case "locked":
			result := c.Unlock(t, c.RecoveryKey())
			if result.Code == 0 {
				t.Errorf("%s: it was unlocked", what)
			}
			how.status.Storage.Problem += result.Stderr
			c.Down(t)
		case "up":
			t.Fatalf("%s: it is up: %s", what, how)
		}
		said := how.String() + c.Log(t)[from:]
		for _, part := range says {
			if !strings.Contains(said, part) {
				t.Errorf("%s: it does not say %q: %s", what, part, said)
			}
		}
		if after := digest(t, c.Image()); after != before {
			t.Errorf("%s: the image is another than before", what)
		}
	}
	if err := os.Rename(c.Image(), away); err != nil {
		t.Fatal(err)
	}
	refused("missing", c.Image(), first.Node.ID)
	for name, length := range inOrder(map[string]int64{"empty": 0, "truncated": devcluster.ImageSize / 2, "a few bytes": 1000}) {
		if !soak.Enabled && name != "truncated" {
			continue
		}
		copyFile(t, away, c.Image(), length)
		refused(name, c.Image())
		if err := os.Remove(c.Image()); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, away, c.Image(), devcluster.ImageSize)
	file, err := os.OpenFile(c.Image(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Flipped, and not set: what is set to any value may have it already.
	var superblock [1]byte
	if _, err := file.ReadAt(superblock[:], 1024+0x68); err != nil {
		t.Fatal(err)
	}
	superblock[0] ^= 4
	if _, err := file.WriteAt(superblock[:], 1024+0x68); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	refused("a bit of its superblock flipped", c.Image())
	if err := os.Rename(away, c.Image()); err != nil {
		t.Fatal(err)
	}

	// Somebody else has it mounted.
	elsewhere := filepath.Join(c.Home, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("mount", "-o", "loop,ro,noload", c.Image(), elsewhere).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, output)
	}
	mounted := true
	unmount := func() {
		if output, err := exec.Command("umount", elsewhere).CombinedOutput(); mounted && err != nil {
			t.Errorf("umount: %v: %s", err, output)
		}
		mounted = false
	}
	t.Cleanup(unmount)
	refused("mounted elsewhere", c.Image(), elsewhere)
	unmount()
	c.StartCore(t, "")
	awaitLocked(t, c)
	sameNode(t, first, mustUnlock(t, c, fewRoles...))
}

// copyFile copies the beginning of a file, without the room that it does not use.
func copyFile(t *testing.T, from, to string, length int64) {
	t.Helper()
	if output, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, output)
	}
	if err := os.Truncate(to, length); err != nil {
		t.Fatal(err)
	}
}

// TestSealedParametersDamaged damages the parameters, and uses them a second time: no second node is made.
func TestSealedParametersDamaged(t *testing.T) {
	t.Parallel()
	c := newSealed(t, few)
	first := startUp(t, c, fewRoles...)
	stopCore(t, c)
	path := c.Path("reeved.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := systemFiles(t, c)
	kinds := damages[:4]
	if !soak.Enabled {
		kinds = damages[3:4] // truncated
	}
	for _, d := range kinds {
		d.apply(t, path, content)
		from := len(c.Log(t))
		if result := c.StartCore(t, "").Wait(t, patience); result.Code == 0 || !strings.Contains(c.Log(t)[from:], path) {
			t.Errorf("parameters %s: %s\n%s", d.name, result, c.Log(t)[from:])
		}
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if after := systemFiles(t, c); after != before {
			t.Errorf("parameters %s: files were changed", d.name)
		}
	}
	// All of the node but the note of the parameters is gone: they make no other.
	away := c.Path("system.away")
	if err := os.Mkdir(away, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(c.Path("system"))
	if err != nil {
		t.Fatal(err)
	}
	var moved []string
	for _, entry := range entries {
		if !slices.Contains([]string{"consumed.json", "lock"}, entry.Name()) {
			moved = append(moved, entry.Name())
		}
	}
	move := func(from, to string) {
		t.Helper()
		for _, name := range moved {
			if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	move(c.Path("system"), away)
	from := len(c.Log(t))
	core := c.StartCore(t, "")
	eventually.True(t, patience, "it says that the parameters made a node already", func() (bool, string) {
		said := c.Log(t)[from:]
		return strings.Contains(said, c.Path("system", "consumed.json")) && strings.Contains(said, first.Node.ID), said
	})
	select {
	case <-core.Done():
	default:
		c.Down(t)
	}
	if left := systemFiles(t, c); strings.Count(left, "\n") != 1 {
		t.Errorf("something of another node was made: %s", left)
	}
	_ = os.RemoveAll(c.Path("system", "volume"))
	move(away, c.Path("system"))
	if err := os.Remove(away); err != nil {
		t.Fatal(err)
	}
	c.StartCore(t, "")
	awaitLocked(t, c)
	sameNode(t, first, mustUnlock(t, c, fewRoles...))
}

// TestSealedImageTooSmall asks for an image that is too small for a node.
func TestSealedImageTooSmall(t *testing.T) {
	t.Parallel()
	c := newSealed(t, few, func(p *nodev1.Parameters) { p.GetVolume().GetFscrypt().GetImage().SizeBytes = new(int64(16 << 20)) })
	if result := c.StartCore(t, "").Wait(t, patience); result.Code == 0 || !strings.Contains(c.Log(t), "size_bytes") {
		t.Errorf("%s\n%s", result, c.Log(t))
	}
	if _, err := os.Stat(c.Path("system")); err == nil && systemFiles(t, c) != "" {
		t.Errorf("something was made: %s", systemFiles(t, c))
	}
}
