package e2e

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestRestore loses the only machine of a cluster, and brings the cluster back on an empty one from a snapshot: with the third party's counter as it was then, and nothing that came later.
func TestRestore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.WriteParameters(t, func(*nodev1.Parameters) {})
	c.MustReeve(t, "dev", "up", "--detach")
	addLighthouse(t, c)
	before := c.AwaitUp(t, patience, withLighthouse...)
	mustCount(t, http.MethodPost, before.Role("lighthouse"), 1)
	mustCount(t, http.MethodPost, before.Role("lighthouse"), 2)
	key, sealed := filepath.Join(c.Home, "recovery.key"), filepath.Join(c.Home, "sealed")
	var made struct {
		Recipient string `json:"recipient"`
	}
	if err := json.Unmarshal([]byte(c.MustReeve(t, "recovery-key", "new", key, "-o", "json").Stdout), &made); err != nil {
		t.Fatal(err)
	}
	c.MustReeve(t, "policy", "set", "recovery-recipient="+made.Recipient)
	c.MustReeve(t, "store", "snapshot", sealed)
	mustCount(t, http.MethodPost, before.Role("lighthouse"), 3)
	c.MustReeve(t, "node", "label", before.Node.ID, "written=later")

	restore := func(arguments ...string) devcluster.Result {
		t.Helper()
		return c.Run(t, suite.programs.Reeved(), append([]string{"restore", "--parameters", c.Path("reeved.yaml")}, arguments...)...)
	}
	refused := func(says string, arguments ...string) {
		t.Helper()
		if result := restore(arguments...); result.Code == 0 || !strings.Contains(result.Stderr, says) {
			t.Errorf("want a refusal that says %q: %s", says, result)
		}
	}
	ca := filepath.Join(c.Home, "ca.pem")
	if err := os.WriteFile(ca, []byte(c.MustReeve(t, "ca").Stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{"--snapshot", sealed, "--ca", ca, "--recovery-key", key, "--cluster-id", before.Cluster.ID}

	c.MustReeve(t, "dev", "down")
	saysDamaged(t, c)
	refused("restored on empty directories only", all...)
	for _, directory := range []string{c.Path("system"), c.Path("data"), filepath.Join(c.Home, "r")} {
		if err := os.RemoveAll(directory); err != nil {
			t.Fatal(err)
		}
	}
	refused("already made node "+before.Node.ID, all...)
	all = append(all, "--again")
	damagedSnapshots(t, c, sealed, func(file, says string) {
		t.Helper()
		refused(says, "--snapshot", file, "--recovery-key", key, "--cluster-id", before.Cluster.ID, "--again")
	})
	other := filepath.Join(c.Home, "other.key")
	c.MustReeve(t, "recovery-key", "new", other)
	refused("the recovery key is another one", "--snapshot", sealed, "--recovery-key", other, "--cluster-id", before.Cluster.ID, "--again")
	refused("--recovery-key", "--snapshot", sealed, "--cluster-id", before.Cluster.ID, "--again")
	foreign := filepath.Join(c.Home, "foreign.pem")
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	if err := os.WriteFile(foreign, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("which is not in "+foreign, append(slices.Clone(all), "--ca", foreign)...)
	refused("is not the ID of the cluster", "--snapshot", sealed, "--recovery-key", key, "--cluster-id", "another", "--again")
	if _, err := os.Lstat(c.Path("system")); err == nil {
		t.Error("something was made by a restore that was refused")
	}

	// Only the store that was restored knows its owner.
	parameters, err := os.ReadFile(c.Path("reeved.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	stranger, strangers := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, ed25519.PublicKeySize)), filepath.Join(c.Home, "strangers.yaml")
	if err := os.WriteFile(strangers, regexp.MustCompile(`(?i)(owner_?public_?key"?: *"?)[A-Za-z0-9+/]+=`).ReplaceAll(parameters, []byte("${1}"+stranger)), 0o600); err != nil {
		t.Fatal(err)
	}
	result := c.Run(t, suite.programs.Reeved(), append([]string{"restore", "--parameters", strangers}, all...)...)
	if ending := regexp.MustCompile("on node reeve-.*the owner key of the cluster in the snapshot is .* run `reeved restore` again\n$"); result.Code == 0 || !ending.MatchString(result.Stderr) {
		t.Errorf("with another owner: %s", result)
	}
	for _, directory := range []string{c.Path("system"), c.Path("data"), filepath.Join(c.Home, "r")} {
		if err := os.RemoveAll(directory); err != nil {
			t.Fatal(err)
		}
	}

	// Killed on its way, it is not taken for a node, and the same command goes on.
	running := c.StartProgram(t, suite.programs.Reeved(), append([]string{"restore", "--parameters", c.Path("reeved.yaml")}, all...)...)
	eventually.True(t, patience, "the store is being made of the snapshot", func() (bool, string) {
		out, errors := running.Output()
		return strings.Contains(out, "Bootstrapping: "), out + errors
	})
	running.Signal(t, unix.SIGKILL)
	<-running.Done()
	if result := c.Run(t, suite.programs.Reeved(), "--parameters", c.Path("reeved.yaml")); result.Code == 0 || !strings.Contains(result.Stderr, "reeved restore") {
		t.Errorf("plain reeved takes a node that is not restored yet: %s", result)
	}
	result = restore(all...)
	for _, said := range []string{before.Cluster.ID, "is lost", "Home", "reeve node delete"} {
		if !strings.Contains(result.Stdout, said) {
			t.Errorf("it does not say %q", said)
		}
	}
	if result.Code != 0 {
		t.Fatal(result)
	}
	refused("was restored from this snapshot already", all...)

	c.MustReeve(t, "dev", "up", "--detach")
	after := c.AwaitUp(t, patience, devcluster.DefaultRoles...)
	if after.Cluster.ID != before.Cluster.ID || after.Node.ID == before.Node.ID {
		t.Errorf("node %s of cluster %s was restored as node %s of cluster %s", before.Node.ID, before.Cluster.ID, after.Node.ID, after.Cluster.ID)
	}
	addLighthouse(t, c)
	after = c.AwaitUp(t, patience, withLighthouse...)
	mustCount(t, http.MethodGet, after.Role("lighthouse"), 2)
	mustCount(t, http.MethodPost, after.Role("lighthouse"), 3)
	if list := c.MustReeve(t, "node", "list", "-o", "json"); !strings.Contains(list.Stdout, before.Node.ID) || strings.Contains(list.Stdout, `"later"`) {
		t.Errorf("the former node is not known, or by what was written after the snapshot: %s", list)
	}
	eventually.True(t, patience, "the former node is deleted, once its last heartbeat is stale", func() (bool, string) {
		result := c.Reeve(t, "node", "delete", before.Node.ID, "--yes")
		return result.Code == 0, result.String()
	})
	if audit := c.Audit(t); len(audit) == 0 {
		t.Error("the audit log is empty")
	}
	c.MustReeve(t, "store", "snapshot", filepath.Join(c.Home, "next"))
}

// saysDamaged flips a byte of the log of the only member, which ends the cluster. `reeve dev up` names the file, and the way back.
func saysDamaged(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	logs, err := filepath.Glob(c.Path("data", "roles", "consensus", "etcd", "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("the log: %v, %v", logs, err)
	}
	log, err := os.OpenFile(logs[len(logs)-1], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const at = 1000
	flipped := make([]byte, 1)
	_, err = log.ReadAt(flipped, at)
	flipped[0] ^= 0xff
	_, writeErr := log.WriteAt(flipped, at)
	if err := errors.Join(err, writeErr, log.Close()); err != nil {
		t.Fatal(err)
	}
	up := c.Start(t, "dev", "up")
	eventually.True(t, patience, "it says which file is damaged, and what helps", func() (bool, string) {
		_, said := up.Output()
		_, reason, _ := strings.Cut(said, "role consensus: Degraded: ")
		return strings.Contains(reason, log.Name()+" is damaged: ") && strings.Contains(reason, "restore the cluster from a snapshot"), said
	})
	up.Interrupt(t)
	if result := up.Wait(t, patience); result.Code != 0 {
		t.Error(result)
	}
	c.NoProcesses(t)
}

// damagedSnapshots calls check with files that are none to restore from, and with what the refusal of each must say.
func damagedSnapshots(t *testing.T, c *devcluster.Cluster, good string, check func(file, says string)) {
	t.Helper()
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(content)
	flipped[len(flipped)-100] ^= 1
	for name, damaged := range inOrder(map[string]struct {
		content []byte
		says    string
	}{
		"cut":     {content[:len(content)/2], "cut off"},
		"flipped": {flipped, "another hash"},
		"newer":   {bytes.Replace(content, []byte("reeve snapshot 1\n"), []byte("reeve snapshot 2\n"), 1), "format"},
		"none":    {[]byte("nothing\n"), "snapshot"},
	}) {
		file := filepath.Join(c.Home, name)
		if err := os.WriteFile(file, damaged.content, 0o600); err != nil {
			t.Fatal(err)
		}
		check(file, damaged.says)
	}
}
