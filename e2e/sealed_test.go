package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	"github.com/reeveproject/reeve/e2e/internal/softtpm"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// newSealed returns a cluster whose node has an encrypted volume, and does not exist yet.
func newSealed(t *testing.T, edit ...func(*nodev1.Parameters)) *devcluster.Cluster {
	t.Helper()
	if !isRoot() {
		t.Skip("cannot run: only root can mount an image and give the kernel its key")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("cannot run: there are no loop devices here: %v", err)
	}
	c := newCluster(t)
	c.WriteSealed(t, edit...)
	return c
}

// by is the sealer tpm2 with a TPM.
func by(tpm *softtpm.TPM) func(*nodev1.Parameters) {
	return func(p *nodev1.Parameters) {
		p.Seal = &nodev1.Seal{Sealer: &nodev1.Seal_Tpm2{Tpm2: &nodev1.Tpm2Sealer{Device: tpm.Socket()}}}
	}
}

// few leaves away the role that is not needed for a cluster, since many nodes are made.
func few(p *nodev1.Parameters) {
	p.Plugins, p.GetBootstrap().Roles = p.Plugins[:2], p.GetBootstrap().Roles[:2]
}

var fewRoles = devcluster.DefaultRoles[:2]

// startUp starts reeved and waits until the node is up.
func startUp(t *testing.T, c *devcluster.Cluster, roles ...string) devcluster.Status {
	t.Helper()
	c.StartCore(t, "")
	return c.AwaitUp(t, patience, roles...)
}

// stopCore has reeved end as a service manager does, and checks that it has closed its volume.
func stopCore(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	c.Down(t)
	isClosed(t, c)
}

// isClosed checks that nothing of the volume can be read.
func isClosed(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	if mounts := c.Mounts(t); len(mounts) != 0 {
		t.Errorf("the volume is closed, and there is mounted: %v", mounts)
	}
	if entries, err := os.ReadDir(c.Path("data")); err != nil || len(entries) != 0 {
		t.Errorf("the volume is closed, and in data/ there is %v (%v)", entries, err)
	}
}

// awaitLocked waits until the node waits for a key, and says something.
func awaitLocked(t *testing.T, c *devcluster.Cluster, says ...string) devcluster.Status {
	t.Helper()
	return c.Await(t, patience, "the volume Locked, with "+strings.Join(says, ", "), func(s devcluster.Status) bool {
		for _, part := range says {
			if !strings.Contains(s.Storage.Problem, part) {
				return false
			}
		}
		return s.Storage.State == "Locked" && s.Storage.Source("recovery").State == "Waiting"
	})
}

// mustUnlock unlocks the volume by the owner's recovery key and waits until the node is up.
func mustUnlock(t *testing.T, c *devcluster.Cluster, roles ...string) devcluster.Status {
	t.Helper()
	if result := c.Unlock(t, c.RecoveryKey()); result.Code != 0 {
		t.Fatal(result)
	}
	return c.AwaitUp(t, patience, roles...)
}

// sameNode checks that a node is the one that it was.
func sameNode(t *testing.T, before, after devcluster.Status) {
	t.Helper()
	if after.Node.ID != before.Node.ID || after.Cluster.ID != before.Cluster.ID {
		t.Errorf("it is node %s of cluster %s, want %s of %s", after.Node.ID, after.Cluster.ID, before.Node.ID, before.Cluster.ID)
	}
}

// recovered is what is in the node's recovery file: the secrets by their names.
func recovered(t *testing.T, c *devcluster.Cluster, key string) map[string][]byte {
	t.Helper()
	file, err := os.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	identities, err := age.ParseIdentities(file)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := os.ReadFile(c.Path("system", "recovery.age"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := age.Decrypt(bytes.NewReader(encrypted), identities...)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		t.Fatal(err)
	}
	secrets := make(map[string][]byte)
	for _, name := range []string{"node_key", "join_key", "nuk", "cuk", "data_key"} {
		var secret []byte
		if err := json.Unmarshal(fields[name], &secret); err != nil || len(secret) < 32 {
			t.Fatalf("the recovery file has no %s (%v)", name, err)
		}
		secrets[name] = secret
	}
	return secrets
}

// written are the forms in which a secret may be written down.
func written(secret []byte) map[string][]byte {
	return map[string][]byte{
		"bytes": secret, "hex": []byte(hex.EncodeToString(secret)), "capital hex": []byte(strings.ToUpper(hex.EncodeToString(secret))),
		// The end of a base64 text depends on what follows.
		"base64": []byte(base64.RawStdEncoding.EncodeToString(secret[:len(secret)/3*3])),
	}
}

// lookInto shows what was written to a file, piece by piece and without a copy of it: most of an image is holes. Nothing of the file is held afterwards: its volume may be
// about to be closed.
func lookInto(t *testing.T, path string, see func(content []byte)) {
	t.Helper()
	if err := look(path, see); err != nil {
		t.Fatal(err)
	}
}

// look is lookInto for the caller to judge, such as that the file is gone.
func look(path string, see func(content []byte)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for end := int64(0); ; {
		begin, err := file.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // there is nothing more
		}
		if err == nil {
			end, err = file.Seek(begin, unix.SEEK_HOLE)
		}
		if err != nil {
			return err
		}
		content, err := unix.Mmap(int(file.Fd()), begin, int(end-begin), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		see(content)
		if err := unix.Munmap(content); err != nil {
			return err
		}
	}
}

// digest tells whether a file was changed; empty if there is none. Nobody forges these files, and a cryptographic digest of an image would take seconds.
func digest(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	size, err := io.Copy(sum, file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d bytes, %08x", size, sum.Sum32())
}

// fileSystem is the UUID of the file system in an image, which another one would not have; empty if there is no image.
func fileSystem(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	file, err := os.Open(c.Image())
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var uuid [16]byte
	if _, err := file.ReadAt(uuid[:], 1024+0x68); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(uuid[:])
}

// addWriter adds a role that writes what it is told to its part of the store.
func addWriter(t *testing.T, c *devcluster.Cluster, node string) {
	t.Helper()
	c.MustReeve(t, "plugin", "add", "--approve", buildPlugin(t, "writer", nil))
	c.MustReeve(t, "node", "role", "add", node, "writer")
}

// write has the writer write a value to the store.
func write(t *testing.T, writer devcluster.Role, key, value string) {
	t.Helper()
	if _, err := request(http.MethodPost, writer.URL()+"/put?"+url.Values{"key": {key}, "value": {value}}.Encode()); err != nil {
		t.Fatal(err)
	}
}

// holds checks that a value that was written before is in the store.
func holds(t *testing.T, writer devcluster.Role, key, want string) {
	t.Helper()
	var all map[string]string
	ask(t, http.MethodGet, writer.URL()+"/all", &all)
	found := false
	for name, value := range all {
		found = found || strings.HasSuffix(name, key) && value == want
	}
	if !found {
		t.Errorf("what was written is lost: %v", all)
	}
}

// TestSealedAndUnlockedAtOnce seals and unlocks a node one right after the other: a call that meets the moment in which the socket is served anew is made again.
func TestSealedAndUnlockedAtOnce(t *testing.T) {
	t.Parallel()
	c := newSealed(t, few)
	before := startUp(t, c, fewRoles...)
	// The cluster knows the recovery key from its first node's parameters.
	c.MustReeve(t, "store", "snapshot", filepath.Join(c.Home, "sealed"))
	if result := c.Run(t, suite.programs.Reeve(), "store", "snapshot", "inspect", filepath.Join(c.Home, "sealed"), "--recovery-key", c.RecoveryKey(), "-o", "json"); !strings.Contains(result.Stdout, `"checked": "database"`) {
		t.Errorf("the recovery key does not open a snapshot: %s", result)
	}
	rounds := 3
	if soak.Enabled {
		rounds = 20
	}
	for range rounds {
		c.MustReeve(t, "node", "seal", "--yes")
		c.MustReeve(t, "node", "unlock", "--wait=false", "--recovery-key", c.RecoveryKey())
	}
	sameNode(t, before, c.AwaitUp(t, patience, fewRoles...))
	stopCore(t, c)
}
