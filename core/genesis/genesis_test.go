package genesis_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/genesis"
	"github.com/reeveproject/reeve/core/plugin/store"
	"github.com/reeveproject/reeve/proto/attest"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
	"github.com/reeveproject/reeve/sdk/role"
)

func TestMain(m *testing.M) {
	// Launched as a plugin, the test's binary is one.
	if os.Getenv(role.Handshake.MagicCookieKey) != "" {
		run := func(context.Context, *role.Host) error { return nil }
		role.Serve(role.Plugin{Name: "beacon", Version: "1.2.3", Roles: []role.Role{
			{Name: "beacon", ConsensusUser: "beacon", Grants: []role.Grant{role.GrantListen("7443"), role.GrantPrivileged()}, Run: run},
			{Name: "plain", Run: run},
		}})
	}
	leaktest.VerifyTestMain(m)
}

func digest(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

func record(name string) *clusterv1.PluginRecord {
	return &clusterv1.PluginRecord{
		Name: name, Version: "1.0.0", Digests: map[string]string{store.Platform: digest("a")},
		Manifest: &rolev1.Manifest{Name: name, Version: "1.0.0", Protocols: []string{store.RoleProtocol}, Roles: []*rolev1.RoleManifest{{Name: name}}},
	}
}

func encode(t *testing.T, g *nodev1.Genesis) []byte {
	t.Helper()
	content, err := protojson.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	written := &nodev1.Genesis{Version: genesis.Version, Plugins: []*clusterv1.PluginRecord{record("a"), record("b")}}
	path, again := filepath.Join(t.TempDir(), genesis.FileName), filepath.Join(t.TempDir(), genesis.FileName)
	if err := genesis.Write(path, written); err != nil {
		t.Fatal(err)
	}
	if err := genesis.Write(again, written); err != nil {
		t.Fatal(err)
	}
	read, err := genesis.Load(path)
	if err != nil || !proto.Equal(read, written) {
		t.Errorf("read %v, %v", read, err)
	}
	one, _ := os.ReadFile(path)
	other, _ := os.ReadFile(again)
	if string(one) != string(other) {
		t.Error("the same catalog is two files")
	}
	if found := genesis.Record(read, digest("a")); found.GetName() != "a" {
		t.Errorf("the digest belongs to %v", found)
	}
	if found := genesis.Record(read, digest("b")); found != nil {
		t.Errorf("an unknown digest belongs to %v", found)
	}
	if names := genesis.Names(read); names != "a 1.0.0, b 1.0.0" {
		t.Errorf("it knows %s", names)
	}
}

// A plugin that was built is asked what it is, and is granted what it asks for, by its digest.
func TestMake(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	made, err := genesis.Make(t.Context(), []string{self}, "")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	found := genesis.Record(made, "sha256:"+hex.EncodeToString(sum[:]))
	if found.GetName() != "beacon" || found.GetVersion() != "1.2.3" || len(found.GetGrants()) != 1 || len(found.GetGrants()[0].GetGrants()) != 2 ||
		found.GetGrants()[0].GetConsensusUser() != "beacon" {
		t.Errorf("made %v", made)
	}
}

// Whatever is wrong is said with its place, all at once.
func TestRefusals(t *testing.T) {
	for want, change := range map[string]func(*nodev1.Genesis){
		`version "reeve.node.v2"`:             func(g *nodev1.Genesis) { g.Version = "reeve.node.v2" },
		"plugins[1]: the plugin a is there":   func(g *nodev1.Genesis) { g.Plugins[1] = record("a") },
		"plugins[0]: its name is other":       func(g *nodev1.Genesis) { g.Plugins[0].Name = "other" },
		"plugins[1]: the plugin b has no dig": func(g *nodev1.Genesis) { g.Plugins[1].Digests = nil },
		"plugins[0]: the digest for":          func(g *nodev1.Genesis) { g.Plugins[0].Digests["linux/x"] = "md5:a" },
		"plugins[0]: ":                        func(g *nodev1.Genesis) { g.Plugins[0].Manifest = nil },
		"role a: ": func(g *nodev1.Genesis) {
			g.Plugins[0].Grants = []*clusterv1.RoleGrants{{Role: "a", Grants: []*rolev1.Grant{{Name: "frobnicate"}}}}
		},
	} {
		g := &nodev1.Genesis{Version: genesis.Version, Plugins: []*clusterv1.PluginRecord{record("a"), record("b")}}
		change(g)
		if _, err := genesis.Parse(encode(t, g)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got: %v", want, err)
		}
	}
	if _, err := genesis.Load(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "reeved genesis") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := genesis.Make(t.Context(), []string{"/etc/passwd"}, ""); err == nil || !strings.Contains(err.Error(), "not a Linux executable") {
		t.Errorf("what is no executable: %v", err)
	}
}

// key is one whose letter says whose it is.
func key(letter string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(letter, 32)))
}

// report writes what the suite says of the executable with a digest, signed by a key, into a directory.
func report(t *testing.T, directory, letter string, by ed25519.PrivateKey) {
	t.Helper()
	envelope, err := attest.Sign(&attest.Report{File: "a", Digest: digest(letter), Conformance: attest.Conformance{
		SuiteVersion: "0.1.0", Machine: attest.Machine{OS: "linux", Architecture: "amd64"}, Started: time.Unix(1e9, 0),
		Profiles: []attest.Profile{{Profile: "core", Verdict: attest.Conforms}}, Checks: []attest.Check{{Check: "a", Profile: "core", Status: attest.Pass}},
	}}, by)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, letter+".json"), envelope, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The reports on the executables of a build are part of the catalog, with the key that signed them, and a catalog with one that does not fit is refused.
func TestReports(t *testing.T) {
	other := record("b")
	other.Digests = map[string]string{"linux/arm64": digest("b")}
	catalog := func() *nodev1.Genesis {
		return &nodev1.Genesis{Version: genesis.Version, Plugins: []*clusterv1.PluginRecord{record("a"), other}}
	}
	directory := t.TempDir()
	report(t, directory, "a", key("k"))
	report(t, directory, "b", key("k"))
	report(t, directory, "c", key("x")) // of an earlier build, with its own key
	made := catalog()
	if others, err := genesis.AddReports(made, directory); err != nil || len(others) != 1 || !strings.HasSuffix(others[0], "c.json") {
		t.Fatalf("left out: %v, %v", others, err)
	}
	path := filepath.Join(t.TempDir(), genesis.FileName)
	if err := genesis.Write(path, made); err != nil {
		t.Fatal(err)
	}
	read, err := genesis.Load(path)
	if err != nil || !proto.Equal(read, made) || len(read.GetReports()) != 2 || !bytes.Equal(read.GetReportsKey(), key("k").Public().(ed25519.PublicKey)) {
		t.Fatalf("read %v, %v", read, err)
	}
	if on := genesis.ReportsOn(read, []*clusterv1.PluginRecord{other}); len(on) != 1 || !bytes.Equal(on[0], read.GetReports()[1]) {
		t.Errorf("on one plugin: %q", on)
	}
	for want, change := range map[string]func(*nodev1.Genesis){
		"reports_key":                  func(g *nodev1.Genesis) { g.ReportsKey = nil },
		"reports[0]: attest: the sign": func(g *nodev1.Genesis) { g.ReportsKey = key("x").Public().(ed25519.PublicKey) },
		"reports[1]: attest: the enve": func(g *nodev1.Genesis) { g.Reports[1] = []byte("x") },
		"reports[1]: there is another": func(g *nodev1.Genesis) { g.Reports[1] = g.Reports[0] },
		"reports[1]: it is about":      func(g *nodev1.Genesis) { g.Plugins = g.Plugins[:1] },
	} {
		changed := proto.CloneOf(made)
		change(changed)
		if _, err := genesis.Parse(encode(t, changed)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got: %v", want, err)
		}
	}
	report(t, directory, "b", key("x"))
	if _, err := genesis.AddReports(catalog(), directory); err == nil || !strings.Contains(err.Error(), "signature") {
		t.Errorf("reports by two keys: %v", err)
	}
	if err := os.WriteFile(filepath.Join(directory, "d.json"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := genesis.AddReports(catalog(), directory); err == nil || !strings.Contains(err.Error(), "d.json") {
		t.Errorf("what is no report: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version": "reeve.node.v1", "plugins": [{"name": "a", "digests": {"linux/amd64": "sha256:0"}}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		parsed, err := genesis.Parse(content)
		if err != nil {
			return
		}
		again, err := genesis.Parse(encode(t, parsed))
		if err != nil || !proto.Equal(parsed, again) {
			t.Errorf("read again it is %v, %v", again, err)
		}
	})
}
