//go:build soak

package vm

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/reeveproject/reeve/e2e/vm/internal/machine"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// sealedMachine is a machine whose node keeps its volume in LUKS2 and its secrets by the TPM.
type sealedMachine struct {
	*machine.Machine
	parameters []byte
	// recovery is the owner's recovery key.
	recovery *age.X25519Identity
	// marker is a label of the node, and so something that is in etcd and must be nowhere else.
	marker string
}

func newSealedMachine(t *testing.T, name string) *sealedMachine {
	t.Helper()
	m := &sealedMachine{Machine: newMachine(t, name), marker: "marker-" + strings.ToLower(rand.Text())}
	var err error
	if m.recovery, err = age.GenerateX25519Identity(); err != nil {
		t.Fatal(err)
	}
	m.parameters = newParameters(t, func(p *nodev1.Parameters) {
		p.Volume = &nodev1.Volume{Kind: &nodev1.Volume_Luks{Luks: &nodev1.LuksVolume{Device: machine.Volume}}}
		p.Seal = &nodev1.Seal{Sealer: &nodev1.Seal_Tpm2{Tpm2: &nodev1.Tpm2Sealer{}}}
		p.GetBootstrap().RecoveryRecipient = m.recovery.Recipient().String()
		p.GetBootstrap().Labels = map[string]string{"place": m.marker}
	})
	return m
}

// boot switches the machine on, with one of its TPMs.
func (m *sealedMachine) boot(t *testing.T, tpm string) *guest {
	t.Helper()
	return boot(t, m.Machine, machine.Options{TPM: tpm, Parameters: m.parameters})
}

// unlock opens the node by the recovery key.
func (m *sealedMachine) unlock(t *testing.T, g *guest) {
	t.Helper()
	begin := time.Now()
	said := g.mustWith(t, m.recovery.String()+"\n", "reeve", "node", "unlock", "--recovery-key", "-", "--timeout", patience.String())
	t.Logf("unlocked after %s: %s", time.Since(begin).Round(10*time.Millisecond), said)
}

// TestSealed follows one node of LUKS2 and TPM through its life. Each boot takes its time: a test of its own for everything would take an hour.
func TestSealed(t *testing.T) {
	t.Parallel()
	m := newSealedMachine(t, "sealed")
	var node string
	var keys map[string][]byte

	step(t, "bootstrap", func(t *testing.T) {
		g := m.boot(t, "first")
		g.prepare(t)
		g.start(t)
		s := g.awaitHome(t, "bootstrap on LUKS2 and TPM")
		node = s.Node.ID
		if s.Storage.State != "Open" || s.Storage.Kind != "luks" || !s.Storage.Encrypted || s.Storage.Sealer != "tpm2" || s.Storage.Problem != "" {
			t.Errorf("the storage of a node on LUKS2 and TPM: %s", s.text)
		}
		if len(s.Storage.Weaknesses) != 0 {
			t.Errorf("weaknesses of a node that has none: %q", s.Storage.Weaknesses)
		}
		if !strings.Contains(g.log(t), "opt/dev.reeve/parameters") {
			t.Error("the log does not say that the parameters are from the firmware's configuration")
		}
		if found := g.sh(t, "ls "+systemDirectory); !strings.Contains(found, "consumed.json") {
			t.Errorf("the parameters are not marked consumed: %s", found)
		}
		g.isWhole(t, s)
		if table := g.sh(t, "cat /proc/mounts"); !strings.Contains(table, "/dev/mapper/") {
			t.Errorf("no mapped device is mounted: %s", table)
		}
		// Only where etcd is: to search the executables beside it would take minutes.
		if g.run(t, "", "grep", "-rqF", m.marker, dataDirectory+"/roles").Code != 0 {
			t.Error("the marker is not on the open volume: that it is not on the closed one shows nothing")
		}
		file, err := g.ReadFile(t.Context(), systemDirectory+"/recovery.age")
		if err != nil {
			t.Fatal(err)
		}
		keys = m.recovered(t, file)
		if result := g.stop(t); result.Code != 0 {
			t.Errorf("reeved ended with %d %s", result.Code, result.Signal)
		}
		g.isClosed(t)
		g.off(t)
	})
	step(t, "nothing on the disks", func(t *testing.T) {
		m.hasNone(t, keys)
	})
	step(t, "reboot", func(t *testing.T) {
		g := m.boot(t, "first")
		g.start(t)
		if s := g.awaitHome(t, "reboot, unattended"); s.Node.ID != node || s.source("tpm").State != "Used" {
			t.Errorf("after the reboot of node %s: %s", node, s.text)
		}
		step(t, "seal", func(t *testing.T) {
			g.must(t, "reeve", "node", "seal", "--yes", "--timeout", patience.String())
			if s := g.await(t, "the state Sealed", func(s status) bool { return s.Storage.State == "Sealed" }); len(s.Roles) != 0 && s.home() {
				t.Errorf("roles of a sealed node: %s", s.text)
			}
			g.isClosed(t)
		})
		step(t, "unlock", func(t *testing.T) {
			m.unlock(t, g)
			g.awaitHome(t, "unlocked")
		})
		step(t, "rotate", func(t *testing.T) {
			g.must(t, "reeve", "node", "keys", "rotate", "--nuk", "--cuk", "--data-key")
			file, err := g.ReadFile(t.Context(), systemDirectory+"/recovery.age")
			if err != nil {
				t.Fatal(err)
			}
			next := m.recovered(t, file)
			for _, name := range []string{"nuk", "cuk", "data_key"} {
				if bytes.Equal(keys[name], next[name]) {
					t.Errorf("%s is the same after it was rotated", name)
				}
			}
			keys = next
			g.stop(t)
			g.isClosed(t)
			g.start(t)
			g.awaitHome(t, "after the rotation")
		})
		g.stop(t)
		g.off(t)
	})
	step(t, "another TPM", func(t *testing.T) {
		g := m.boot(t, "second")
		g.start(t)
		s := g.await(t, "locked, with the reason", func(s status) bool { return s.Storage.State == "Locked" && s.Storage.Problem != "" })
		if !strings.Contains(s.Storage.Problem, "another TPM") || !strings.Contains(s.Storage.Problem, "reeve node unlock") {
			t.Errorf("the problem does not name the TPM and the way out: %s", s.text)
		}
		other, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		if result := g.run(t, other.String()+"\n", "reeve", "node", "unlock", "--recovery-key", "-"); result.Code == 0 {
			t.Errorf("another recovery key opens the node: %s", result.Stdout)
		}
		m.unlock(t, g)
		if s := g.awaitHome(t, "recovered with another TPM"); s.Node.ID != node {
			t.Errorf("node %s has become another: %s", node, s.text)
		}
		g.must(t, "reeve", "node", "reseal")
		g.stop(t)
		step(t, "changed register", func(t *testing.T) {
			g.extend(t)
			g.start(t)
			s := g.await(t, "locked, with the reason", func(s status) bool { return s.Storage.State == "Locked" && s.Storage.Problem != "" })
			if !strings.Contains(s.Storage.Problem, "PCR 7") {
				t.Errorf("the problem does not name the register: %s", s.text)
			}
			m.unlock(t, g)
			g.awaitHome(t, "recovered with a changed register")
			// The next change is planned: what the register will be then is known before.
			g.must(t, "reeve", "node", "reseal", "--pcr", "7="+hex.EncodeToString(extended(g.register(t))))
			g.stop(t)
		})
		g.off(t)
	})
	step(t, "planned change", func(t *testing.T) {
		g := m.boot(t, "second")
		g.extend(t)
		g.extend(t)
		g.start(t)
		if s := g.awaitHome(t, "reboot after reseal, unattended"); s.Node.ID != node || s.source("tpm").State != "Used" {
			t.Errorf("after the reboot of node %s: %s", node, s.text)
		}
		g.stop(t)
		g.off(t)
	})
	step(t, "nothing on the disks at the end", func(t *testing.T) {
		m.hasNone(t, keys)
	})
}

// step runs a part of a test that the rest builds on.
func step(t *testing.T, name string, run func(*testing.T)) {
	t.Helper()
	if !t.Run(name, run) {
		t.FailNow()
	}
}

// prepare makes the file that the role hostsfile is granted.
func (g *guest) prepare(t *testing.T) {
	t.Helper()
	if err := g.WriteFile(t.Context(), hostsFile, []byte("127.0.0.1\tlocalhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// isClosed checks that a volume cannot be read any more.
func (g *guest) isClosed(t *testing.T) {
	t.Helper()
	if mapped := strings.Fields(g.sh(t, "ls /dev/mapper")); len(mapped) != 1 || mapped[0] != "control" {
		t.Errorf("devices are still mapped: %q", mapped)
	}
	if mounts := g.sh(t, "cat /proc/mounts"); strings.Contains(mounts, dataDirectory) || strings.Contains(mounts, "/dev/mapper") {
		t.Errorf("the volume is still mounted: %s", mounts)
	}
	if left := g.sh(t, "ls -A "+dataDirectory); left != "" {
		t.Errorf("files in the directory of a closed volume: %s", left)
	}
}

// isWhole checks that the machine is one on which a node can keep its roles apart: pure cgroup v2, root, a TPM and dm-crypt.
func (g *guest) isWhole(t *testing.T, s status) {
	t.Helper()
	if s.Node.Isolation != "own-uid" {
		t.Errorf("the roles of a node that is root have the isolation %q", s.Node.Isolation)
	}
	if group := strings.TrimSpace(g.sh(t, "cat /proc/self/cgroup")); !strings.HasPrefix(group, "0::/") || strings.Contains(group, "\n") {
		t.Errorf("not pure cgroup v2: %s", group)
	}
	groups := make(map[string]bool)
	for _, role := range s.Roles {
		group := strings.TrimSpace(g.must(t, "cat", fmt.Sprintf("/proc/%d/cgroup", role.PID)))
		if group == "0::/" || groups[group] {
			t.Errorf("role %s has no control group of its own, but %s", role.Role, group)
		}
		groups[group] = true
	}
	doctor := string(g.run(t, "", "reeve", "doctor").Stdout)
	for _, want := range []string{"cgroups", "tpm", "luks"} {
		found := false
		for line := range strings.Lines(doctor) {
			fields := strings.Fields(line)
			found = found || len(fields) > 1 && fields[0] == want && fields[1] == "ok"
		}
		if !found {
			t.Errorf("reeve doctor does not find %s in order:\n%s", want, doctor)
		}
	}
}

// recovered returns the secrets of a recovery file.
func (m *sealedMachine) recovered(t *testing.T, file []byte) map[string][]byte {
	t.Helper()
	reader, err := age.Decrypt(bytes.NewReader(file), m.recovery)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	secrets := make(map[string][]byte)
	for _, name := range []string{"node_key", "join_key", "nuk", "cuk", "data_key"} {
		text, _ := document[name].(string)
		if secrets[name], err = base64.StdEncoding.DecodeString(text); err != nil || len(secrets[name]) < 32 {
			t.Fatalf("the recovery file has no %s", name)
		}
	}
	return secrets
}

// hasNone searches the disks of a machine that is off for the secrets of its node: as they are, in base64 and in hex.
func (m *sealedMachine) hasNone(t *testing.T, keys map[string][]byte) {
	t.Helper()
	forms := map[string][]byte{"what is in etcd": []byte(m.marker)}
	for name, key := range keys {
		forms[name] = key
		// Three bytes of what is encoded stand for four letters, wherever the whole begins.
		forms[name+" in base64"] = []byte(base64.StdEncoding.EncodeToString(key)[:40])
		forms[name+" in base64 for URLs"] = []byte(base64.URLEncoding.EncodeToString(key)[:40])
		forms[name+" in hex"] = []byte(hex.EncodeToString(key))
	}
	for _, image := range []string{m.VolumeImage(), m.StateImage()} {
		content, err := os.ReadFile(image)
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.Trim(content, "\x00")) == 0 {
			t.Errorf("%s is empty: that nothing is in it shows nothing", image)
		}
		for name, form := range forms {
			if at := bytes.Index(content, form); at >= 0 {
				t.Errorf("%s: %s is at %d", image, name, at)
			}
		}
	}
}
