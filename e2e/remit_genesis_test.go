package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

const platform = runtime.GOOS + "/" + runtime.GOARCH

// digestOf is the digest of a file as the catalog writes it.
func digestOf(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// changedPlugins returns a copy of the directory of the built-in plugins, in which hostsfile has been changed since it was built: it works as before.
func changedPlugins(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	directory := filepath.Join(c.Home, "plugins")
	if err := os.CopyFS(directory, os.DirFS(suite.programs.Plugins())); err != nil {
		t.Fatal(err)
	}
	hostsfile := filepath.Join(directory, "hostsfile")
	content, err := os.ReadFile(hostsfile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hostsfile, append(content, 'x'), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{""}, devcluster.DefaultRoles...) {
		if err := os.Chmod(filepath.Join(directory, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// TestRemitGenesis makes clusters: their first catalog is the one that was made when the plugins were built, and no other executable makes one.
func TestRemitGenesis(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		plugins := changedPlugins(t, c)
		changed := filepath.Join(plugins, "hostsfile")
		result := c.Reeve(t, "dev", "up", "--detach", "--plugins", plugins)
		refused(t, result, changed, digestOf(t, changed), "genesis")
		c.NoProcesses(t)
		// The right one in its place makes the cluster, with nothing repaired.
		if err := os.Remove(changed); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(suite.programs.Plugin("hostsfile"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(changed, content, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(changed, 0o755); err != nil {
			t.Fatal(err)
		}
		c.MustReeve(t, "dev", "up", "--detach", "--plugins", plugins)
		c.AwaitUp(t, patience, devcluster.DefaultRoles...)

		var genesis struct {
			Plugins []struct {
				Name    string
				Version string
				Digests map[string]string
			}
		}
		text, err := os.ReadFile(suite.programs.Genesis())
		if err == nil {
			err = json.Unmarshal(text, &genesis)
		}
		if err != nil || len(genesis.Plugins) != len(devcluster.DefaultRoles) {
			t.Fatalf("the genesis catalog is %s: %v", text, err)
		}
		for _, want := range genesis.Plugins {
			got := showPlugin(t, c, want.Name)
			if got.Version != want.Version || got.Digests[platform] != want.Digests[platform] || !got.Genesis {
				t.Errorf("the catalog has %+v, want %+v", got, want)
			}
			if file := digestOf(t, suite.programs.Plugin(want.Name)); got.Digests[platform] != file {
				t.Errorf("the catalog has %s for %s, and the file is %s", got.Digests[platform], want.Name, file)
			}
			if running := c.Status(t).Role(want.Name); running.Digest != want.Digests[platform] {
				t.Errorf("%s runs %s, want %s", want.Name, running.Digest, want.Digests[platform])
			}
			if len(got.Roles) == 0 || got.Waiting != nil {
				t.Errorf("%+v is not granted what it asks for by the genesis catalog", got)
			}
		}
	})
}

// TestRemitInbox makes a cluster without a genesis catalog, of plugins that are asked what they are. Then the directory of the plugins is only an inbox:
// what is done to it later has no effect.
func TestRemitInbox(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	plugins := changedPlugins(t, c)
	hostsfile := filepath.Join(plugins, "hostsfile")
	c.WriteParameters(t, func(p *nodev1.Parameters) {
		p.Genesis = ""
		for _, builtin := range p.Plugins {
			builtin.Path = filepath.Join(plugins, filepath.Base(builtin.Path))
		}
	})
	c.Up(t)
	before := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	digest := digestOf(t, hostsfile)
	if shown := showPlugin(t, c, "hostsfile"); shown.Digests[platform] != digest || before.Role("hostsfile").Digest != digest {
		t.Errorf("the catalog has %+v and %+v runs, want %s", shown, before.Role("hostsfile"), digest)
	}
	for _, name := range devcluster.DefaultRoles {
		// A program that would run, but is no plugin.
		if err := os.Remove(filepath.Join(plugins, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(plugins, name), []byte("#!/bin/sh\necho replaced\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Kill(t, before.Role("hostsfile").PID)
	c.Await(t, patience, "another process of hostsfile, of the same bytes", func(s devcluster.Status) bool {
		role := s.Role("hostsfile")
		return s.Up(devcluster.DefaultRoles...) && role.PID != before.Role("hostsfile").PID && role.Digest == digest
	})
	c.Down(t)
	c.Up(t)
	after := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	for _, role := range devcluster.DefaultRoles {
		if after.Role(role).Digest != before.Role(role).Digest {
			t.Errorf("%s runs %s, before %s", role, after.Role(role).Digest, before.Role(role).Digest)
		}
	}
}

// TestRemitStoredBytes changes the executable of a role where the node keeps it: it does not run, and the status says why.
func TestRemitStoredBytes(t *testing.T) {
	t.Parallel()
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		c.Up(t)
		file := tenant(t, "plugin=tenant")
		c.MustReeve(t, "plugin", "add", "--approve", file)
		digest := digestOf(t, file)
		stored := c.Path("data", "plugins", strings.Replace(digest, ":", "-", 1))
		info, err := os.Stat(stored)
		if err != nil || info.Mode().Perm()&0o222 != 0 {
			t.Fatalf("the stored executable is %v (%v), want it for nobody to write", info, err)
		}
		changeByte(t, stored, info)
		number := strings.TrimPrefix(digest, "sha256:")
		refused(t, c.Reeve(t, "node", "role", "add", "self", "tenant", "--timeout", "2m"), "Failed", number)
		shown := showRole(t, c, "tenant")
		if shown.Instance.State != "Failed" || shown.Instance.PID != 0 || !strings.Contains(shown.Instance.Reason, number) {
			t.Errorf("the role is %s, want it Failed, without a process, with a reason that names %s", shown, digest)
		}
		for _, process := range c.Processes(t) {
			if strings.Contains(process.Executable, number) {
				t.Errorf("it runs: %s", process)
			}
		}
		// The right bytes are taken again, and run.
		c.MustReeve(t, "plugin", "add", "--approve", file)
		c.MustReeve(t, "node", "role", "restart", "self", "tenant")
		if role := c.Status(t).Role("tenant"); role.Digest != digest || role.State != "Ready" {
			t.Errorf("the role is %+v", role)
		}
	})
}

// changeByte changes one byte of a file in place, and leaves it the same for whoever does not look inside.
func changeByte(t *testing.T, path string, info os.FileInfo) {
	t.Helper()
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	last := make([]byte, 1)
	if _, err = file.ReadAt(last, info.Size()-1); err == nil {
		_, err = file.WriteAt([]byte{last[0] ^ 0x55}, info.Size()-1)
	}
	if err := errors.Join(err, file.Close(), os.Chmod(path, info.Mode().Perm()), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
}
