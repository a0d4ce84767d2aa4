package e2e

import (
	"crypto/ed25519"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/proto/attest"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// reportFor writes what the suite would say of an executable that conforms, signed by a key, so that not every test has to run the suite for it.
func reportFor(t *testing.T, executable, file string, key ed25519.PrivateKey) {
	t.Helper()
	envelope, err := attest.Sign(&attest.Report{File: filepath.Base(executable), Digest: digestOf(t, executable), Conformance: attest.Conformance{
		SuiteVersion: "0.1.0", Machine: attest.Machine{OS: runtime.GOOS, Architecture: runtime.GOARCH}, Started: time.Now().UTC().Truncate(time.Second),
		Profiles: []attest.Profile{{Profile: "core", Verdict: attest.Conforms}}, Checks: []attest.Check{{Check: "handshake.line", Profile: "core", Status: attest.Pass}},
	}}, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, envelope, 0o644); err != nil {
		t.Fatal(err)
	}
}

// reportedPlugin is what `reeve plugin show -o json` says of reports.
type reportedPlugin struct {
	Reports []struct{ Result, Signer string }
}

func showReports(t *testing.T, c *devcluster.Cluster, name string) string {
	t.Helper()
	var shown reportedPlugin
	document(t, c.MustReeve(t, "plugin", "show", name, "-o", "json"), &shown)
	var texts []string
	for _, report := range shown.Reports {
		texts = append(texts, report.Result+" by "+report.Signer)
	}
	return strings.Join(texts, ", ")
}

// genesisWithReports makes a genesis catalog with reports on some of the built-in plugins, as `make reports` does, and returns its file.
func genesisWithReports(t *testing.T, c *devcluster.Cluster, release ed25519.PrivateKey, on ...string) string {
	t.Helper()
	directory, catalog := t.TempDir(), filepath.Join(c.Home, "genesis.json")
	for _, name := range on {
		reportFor(t, suite.programs.Plugin(name), filepath.Join(directory, name+".json"), release)
	}
	reportFor(t, suite.programs.Lighthouse(), filepath.Join(directory, "stale.json"), release)
	made := exec.CommandContext(t.Context(), suite.programs.Reeved(), "genesis", "--output", catalog, "--reports", directory,
		suite.programs.Plugin("consensus"), suite.programs.Plugin("curator"), suite.programs.Plugin("hostsfile"))
	if text, err := made.CombinedOutput(); err != nil || !strings.Contains(string(text), "stale.json is about another build") {
		t.Fatalf("%v: %s", err, text)
	}
	return catalog
}

// TestReports is a plugin on its way to a node of a cluster that demands reports. The cluster was made with reports on two of its three plugins. What the suite itself
// signs is in TestProveAPlugin.
func TestReports(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, release, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	catalog := genesisWithReports(t, c, release, "consensus", "curator")
	c.WriteParameters(t, func(p *nodev1.Parameters) { p.Genesis = catalog })
	c.Up(t)
	if consensus, hostsfile := showReports(t, c, "consensus"), showReports(t, c, "hostsfile"); consensus != "passed by built in" || hostsfile != "" {
		t.Errorf("the cluster has begun with %q on consensus and %q on hostsfile", consensus, hostsfile)
	}

	// What runs without a report is in the way of the policy, until there is one.
	for _, flags := range [][]string{{"--dry-run"}, nil} {
		result := c.Reeve(t, append([]string{"policy", "set", "conformance=required"}, flags...)...)
		refused(t, result, "plugin hostsfile", digestOf(t, suite.programs.Plugin("hostsfile")), "reeve plugin report add")
		if strings.Contains(result.Stderr, "plugin consensus") {
			t.Errorf("what has a report is in the way: %s", result)
		}
	}
	owner := devcluster.ReadKey(t, c.Path("owner.key"))
	report := filepath.Join(t.TempDir(), "report")
	reportFor(t, suite.programs.Plugin("hostsfile"), report, release)
	refused(t, c.Reeve(t, "plugin", "report", "add", report), "nobody in the cluster has that key")
	reportFor(t, suite.programs.Plugin("hostsfile"), report, owner)
	c.MustReeve(t, "plugin", "report", "add", report)
	c.MustReeve(t, "policy", "set", "conformance=required")

	lighthouse := suite.programs.Lighthouse()
	refused(t, c.Reeve(t, "plugin", "add", "--approve", lighthouse), "plugin lighthouse", digestOf(t, lighthouse), "reeve plugin test FILE --report")
	if names := c.MustReeve(t, "plugin", "list").Stdout; strings.Contains(names, "lighthouse") {
		t.Errorf("it is in the catalog: %s", names)
	}
	reportFor(t, lighthouse, report, owner)
	if verified := c.MustReeve(t, "plugin", "report", "verify", report, "--plugin", lighthouse); !strings.Contains(verified.Stdout, "the key of the cluster's owner") {
		t.Errorf("verified: %s", verified)
	}
	c.MustReeve(t, "plugin", "add", "--approve", lighthouse, "--report", report)
	if shown := showReports(t, c, "lighthouse"); shown != "passed by owner" {
		t.Errorf("the catalog has %q on lighthouse", shown)
	}
	c.MustReeve(t, "node", "role", "add", "self", "lighthouse")
	c.AwaitUp(t, patience, withLighthouse...)
	content, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	if given := c.MustReeve(t, "plugin", "report", "get", "lighthouse").Stdout; given != string(content) {
		t.Errorf("the cluster gives back %s", given)
	}
}
