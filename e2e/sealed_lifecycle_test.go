package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	"github.com/reeveproject/reeve/e2e/internal/softtpm"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// withWriter are the roles of a cluster with the writer.
var withWriter = append([]string{"writer"}, fewRoles...)

// TestSealed follows a node with an encrypted volume, and its secrets in a file, through its life.
func TestSealed(t *testing.T) {
	t.Parallel()
	c := newSealed(t, few)
	first := startUp(t, c, fewRoles...)
	if s := first.Storage; s.State != "Open" || s.Kind != "fscrypt" || !s.Encrypted || s.Location != c.Image() || s.Sealer != "file" || !s.Recoverable || s.Problem != "" {
		t.Errorf("the storage of a new node: %+v", s)
	}
	if all := strings.Join(first.Storage.Weaknesses, "\n"); !strings.Contains(all, "permissions of a file") {
		t.Errorf("that the secrets are in a file is no weakness: %s", all)
	}
	addWriter(t, c, first.Node.ID)
	running := c.AwaitUp(t, patience, withWriter...)
	marker := "marker-" + rand.Text()
	write(t, running.Role("writer"), "marker", marker)
	asClusterSees(t, c, func(s devcluster.Storage) bool { return s.Encrypted && s.Kind == "fscrypt" && s.State == "Open" })

	// The core is killed: the volume is open, and the next core needs no key.
	running = c.Status(t)
	c.Kill(t, c.Core(t).PID)
	after := startUp(t, c, withWriter...)
	sameNode(t, first, after)
	for role, pid := range running.PIDs() {
		if after.Role(role).PID != pid {
			t.Errorf("%s had process %d, and has %d", role, pid, after.Role(role).PID)
		}
	}
	holds(t, after.Role("writer"), "marker", marker)
	if !under(t, c.Path("data"), []byte(marker)) {
		t.Error("the marker is not on the open volume: that it is not in the image of the closed one shows nothing")
	}

	secrets := recovered(t, c, c.RecoveryKey())
	secrets["marker"] = []byte(marker)
	image := fileSystem(t, c)
	core := c.Core(t).PID
	// What is in use is not closed, and it is said by whom. When it is not any more, it is.
	held, err := os.Open(c.Path("data", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	busy := c.Reeve(t, "node", "seal", "--yes")
	if busy.Code == 0 || !strings.Contains(busy.Stderr, "events.jsonl") || !strings.Contains(busy.Stderr, strconv.Itoa(os.Getpid())) {
		t.Errorf("a volume that is in use was closed: %s", busy)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	sealed := c.Await(t, patience, "the volume Sealed", func(s devcluster.Status) bool { return s.Storage.State == "Sealed" })
	if len(sealed.Roles) != 0 || sealed.Node.ID != first.Node.ID {
		t.Errorf("a sealed node: %s", sealed)
	}
	if left := c.Processes(t); len(left) != 1 || left[0].PID != core {
		t.Errorf("a sealed node has more processes than reeved (%d): %v", core, left)
	}
	isClosed(t, c)
	hasNone(t, c, secrets)
	refused := c.Reeve(t, "node", "list")
	if refused.Code == 0 || !strings.Contains(refused.Stderr, "reeve node unlock") {
		t.Errorf("of a sealed node: %s", refused)
	}
	wrongKey(t, c)
	opened := mustUnlock(t, c, withWriter...)
	sameNode(t, first, opened)
	if c.Core(t).PID != core {
		t.Error("reeved was started anew to unlock the volume")
	}
	holds(t, opened.Role("writer"), "marker", marker)

	// It ends, and starts again: with its secrets in a file only, it waits for its owner.
	stopCore(t, c)
	c.StartCore(t, "")
	waiting := awaitLocked(t, c, "reeve node unlock")
	if waiting.Node.ID != first.Node.ID || !strings.Contains(waiting.Membership.Reason, "locked") {
		t.Errorf("a node that waits: %s", waiting)
	}
	if text := c.MustReeve(t, "status").Stdout; !strings.Contains(text, "Locked") || !strings.Contains(text, "recovery: Waiting") {
		t.Errorf("the status of a node that waits:\n%s", text)
	}
	wrongKey(t, c)
	mustUnlock(t, c, withWriter...)

	// Other keys, and another recovery key.
	other := filepath.Join(c.Home, "other.key")
	c.MustReeve(t, "node", "keys", "rotate", "--nuk", "--cuk", "--recovery-recipient", c.NewRecoveryKey(t, other))
	next := recovered(t, c, other)
	for _, name := range []string{"nuk", "cuk"} {
		if bytes.Equal(next[name], secrets[name]) {
			t.Errorf("%s is the same after it was rotated", name)
		}
		secrets["next "+name] = next[name]
	}
	stopCore(t, c)
	hasNone(t, c, secrets)
	c.StartCore(t, "")
	awaitLocked(t, c)
	if result := c.Unlock(t, c.RecoveryKey()); result.Code == 0 || !strings.Contains(result.Stderr, "wrong one") {
		t.Errorf("by the former recovery key: %s", result)
	}
	if result := c.Unlock(t, other); result.Code != 0 {
		t.Fatal(result)
	}
	last := c.AwaitUp(t, patience, withWriter...)
	sameNode(t, first, last)
	holds(t, last.Role("writer"), "marker", marker)
	if fileSystem(t, c) != image {
		t.Error("the volume was formatted again")
	}
	onlyThese(t, c, last)
}

// wrongKey tries another recovery key, which is refused with its reason.
func wrongKey(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	wrong := filepath.Join(c.Home, "wrong-"+rand.Text())
	recipient := c.NewRecoveryKey(t, wrong)
	before := c.Status(t).Storage
	result := c.Unlock(t, wrong)
	if result.Code == 0 || !strings.Contains(result.Stderr, "wrong one") || !strings.Contains(result.Stderr, recipient) {
		t.Errorf("by a wrong recovery key: %s", result)
	}
	if after := c.Status(t).Storage; after.State != before.State {
		t.Errorf("after a wrong recovery key the volume is %+v, before %+v", after, before)
	}
}

// under says whether a file below a directory has something in it.
func under(t *testing.T, directory string, what []byte) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		// The node runs, and replaces and removes files meanwhile.
		if err := look(path, func(content []byte) { found = found || bytes.Contains(content, what) }); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// hasNone looks for secrets where somebody may who has the disk, while the volume is closed.
func hasNone(t *testing.T, c *devcluster.Cluster, secrets map[string][]byte) {
	t.Helper()
	files, err := filepath.Glob(c.Path("system", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, c.Path("reeved.log")) {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		lookInto(t, file, func(content []byte) {
			for name, secret := range secrets {
				for form, text := range written(secret) {
					if bytes.Contains(content, text) {
						t.Errorf("%s: the secret %s, as %s", file, name, form)
					}
				}
			}
		})
	}
}

// asClusterSees waits until the cluster says of the node's volume what it is to say.
func asClusterSees(t *testing.T, c *devcluster.Cluster, ok func(devcluster.Storage) bool) {
	t.Helper()
	eventually.True(t, patience, "the cluster says of the volume what the node does", func() (bool, string) {
		var list struct {
			Nodes []struct {
				ID      string             `json:"id"`
				Storage devcluster.Storage `json:"storage"`
			} `json:"nodes"`
		}
		listed := c.MustReeve(t, "node", "list", "-o", "json")
		if err := json.Unmarshal([]byte(listed.Stdout), &list); err != nil || len(list.Nodes) != 1 {
			t.Fatalf("%v: %s", err, listed)
		}
		var shown struct {
			Cluster struct {
				Storage devcluster.Storage `json:"storage"`
			} `json:"cluster"`
		}
		described := c.MustReeve(t, "describe", "node", list.Nodes[0].ID, "-o", "json")
		if err := json.Unmarshal([]byte(described.Stdout), &shown); err != nil {
			t.Fatalf("%v: %s", err, described)
		}
		return ok(list.Nodes[0].Storage) && ok(shown.Cluster.Storage), fmt.Sprint(listed, "\n", described)
	})
}

// TestSealedByTPM follows a node whose secrets a TPM seals: it starts unattended on this machine as it is, and waits for its owner on any other.
func TestSealedByTPM(t *testing.T) {
	t.Parallel()
	tpm := softtpm.Start(t, suite.base)
	c := newSealed(t, few, by(tpm))
	first := startUp(t, c, fewRoles...)
	if s := first.Storage; s.State != "Open" || s.Sealer != "tpm2" || len(s.Weaknesses) != 0 {
		t.Errorf("the storage of a new node: %+v", s)
	}
	secrets := recovered(t, c, c.RecoveryKey())
	stopCore(t, c)
	hasNone(t, c, secrets)
	unattended := func(what string) {
		t.Helper()
		s := startUp(t, c, fewRoles...)
		sameNode(t, first, s)
		if s.Storage.Source("tpm").State != "Used" || s.Storage.Problem != "" {
			t.Errorf("%s: %+v", what, s.Storage)
		}
		stopCore(t, c)
	}
	unattended("restarted")
	image := fileSystem(t, c)

	// The TPM is away, and comes back.
	tpm.Stop(t)
	c.StartCore(t, "")
	awaitLocked(t, c, "TPM", tpm.Socket())
	tpm.Restart(t)
	sameNode(t, first, c.AwaitUp(t, patience, fewRoles...))
	c.MustReeve(t, "node", "keys", "rotate", "--nuk", "--cuk")
	if next := recovered(t, c, c.RecoveryKey()); bytes.Equal(next["nuk"], secrets["nuk"]) || bytes.Equal(next["cuk"], secrets["cuk"]) {
		t.Error("the keys are the same after they were rotated")
	}
	stopCore(t, c)
	unattended("keys rotated")

	// The machine is another.
	for _, change := range []struct {
		name string
		do   func()
		says []string
	}{
		{"a register has changed", func() { tpm.Extend(t, 7) }, []string{"PCR 7", "reeve node unlock"}},
		{"another TPM", func() { tpm.Replace(t) }, []string{"another TPM", "reeve node unlock"}},
	} {
		t.Logf("--- %s", change.name)
		before := systemFiles(t, c)
		change.do()
		c.StartCore(t, "")
		awaitLocked(t, c, change.says...)
		if after := systemFiles(t, c); after != before {
			t.Errorf("%s, and files were changed: %s, before %s", change.name, after, before)
		}
		sameNode(t, first, mustUnlock(t, c, fewRoles...))
		c.MustReeve(t, "node", "reseal")
		stopCore(t, c)
		unattended(change.name)
	}
	if fileSystem(t, c) != image {
		t.Error("the volume was formatted again")
	}
}

// systemFiles are the files in system/ with their digests, as a text. The volume has to be closed.
func systemFiles(t *testing.T, c *devcluster.Cluster) string {
	t.Helper()
	var text strings.Builder
	entries, err := os.ReadDir(c.Path("system"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() && entry.Name() != "lock" {
			text.WriteString(entry.Name() + " " + digest(t, c.Path("system", entry.Name())) + "\n")
		}
	}
	return text.String()
}

// TestSealerOfAnotherKind tells a node another sealer, and another kind of volume, than it was made with: it says so by name and touches nothing.
func TestSealerOfAnotherKind(t *testing.T) {
	t.Parallel()
	tpm := softtpm.Start(t, suite.base)
	file := func(p *nodev1.Parameters) {
		p.Seal = &nodev1.Seal{Sealer: &nodev1.Seal_File{File: &nodev1.FileSealer{}}}
	}
	plain := func(p *nodev1.Parameters) {
		p.Volume = &nodev1.Volume{Kind: &nodev1.Volume_Plain{Plain: &nodev1.PlainVolume{}}}
	}
	for _, test := range []struct {
		name       string
		made, told func(*nodev1.Parameters)
		unattended bool
		says       []string
	}{
		{"tpm2, told file", by(tpm), file, true, []string{"tpm2", "file", "configuration.json"}},
		{"file, told tpm2", file, by(tpm), false, []string{"tpm2", "file", "configuration.json"}},
		{"fscrypt, told plain", file, plain, false, []string{"fscrypt", "plain"}},
	} {
		if !soak.Enabled && test.name != "fscrypt, told plain" {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newSealed(t, few, test.made)
			first := startUp(t, c, fewRoles...)
			stopCore(t, c)
			made, err := os.ReadFile(c.Path("reeved.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			parameters := new(nodev1.Parameters)
			if err := protojson.Unmarshal(made, parameters); err != nil {
				t.Fatal(err)
			}
			test.told(parameters)
			told, err := protojson.Marshal(parameters)
			if err != nil {
				t.Fatal(err)
			}
			before := systemFiles(t, c)
			rewrite(t, c.Path("reeved.yaml"), told)
			from := len(c.Log(t))
			if result := c.StartCore(t, "").Wait(t, patience); result.Code == 0 {
				t.Errorf("it started: %s", result)
			}
			for _, part := range test.says {
				if said := c.Log(t)[from:]; !strings.Contains(said, part) {
					t.Errorf("it does not say %q:\n%s", part, said)
				}
			}
			if after := systemFiles(t, c); after != before {
				t.Errorf("files were changed: %s, before %s", after, before)
			}
			rewrite(t, c.Path("reeved.yaml"), made)
			c.StartCore(t, "")
			if !test.unattended {
				awaitLocked(t, c)
				mustUnlock(t, c, fewRoles...)
			}
			sameNode(t, first, c.AwaitUp(t, patience, fewRoles...))
		})
	}
}

// rewrite puts another content into the place of a file.
func rewrite(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPlainSaysSo looks at a node whose volume is not encrypted: it says so, and the cluster does.
func TestPlainSaysSo(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		status := c.Up(t)
		if text := c.MustReeve(t, "status").Stdout; !strings.Contains(text, "NOT ENCRYPTED") {
			t.Errorf("the status does not say it:\n%s", text)
		}
		asClusterSees(t, c, func(s devcluster.Storage) bool {
			return !s.Encrypted && s.Kind == "plain" && strings.Contains(strings.Join(s.Weaknesses, "\n"), "not encrypted")
		})
		if text := c.MustReeve(t, "node", "list").Stdout; !strings.Contains(text, "NOT ENCRYPTED") {
			t.Errorf("the cluster's list of nodes does not say it:\n%s", text)
		}
		for _, command := range []string{"seal", "unlock"} {
			if result := c.Reeve(t, "node", command); result.Code == 0 || !strings.Contains(result.Stderr, "NOT ENCRYPTED") {
				t.Errorf("%s: %s", command, result)
			}
		}
		sameNode(t, status, c.Status(t))
	})
}
