package e2e

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/follow"
	pages "github.com/reeveproject/reeve/e2e/internal/page"
	"github.com/reeveproject/reeve/e2e/internal/terminal"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
)

// TestProveAPlugin follows docs/how-to/prove-a-plugin.md word for word, beside a dev cluster whose built-in plugins come with reports.
func TestProveAPlugin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, release, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	catalog := genesisWithReports(t, c, release, devcluster.DefaultRoles...)
	c.WriteParameters(t, func(p *nodev1.Parameters) { p.Genesis = catalog })
	c.Up(t)
	if err := os.Mkdir(filepath.Join(c.Home, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{c.Directory: "var/dev", suite.programs.Lighthouse(): "lighthouse"} {
		if err := os.Symlink(from, filepath.Join(c.Home, to)); err != nil {
			t.Fatal(err)
		}
	}
	text := pages.Open(t, suite.programs.Workspace, "docs/how-to/prove-a-plugin.md")
	if skipped := text.Skipped(); len(skipped) != 1 {
		t.Errorf("all commands of the page are run but one: %q", skipped)
	}
	reader := follow.Reader{Run: func(line string) terminal.Result { return runLine(t, c, line) }}
	reader.Follow(t, text)
	said := &reader.Said
	for _, want := range []string{"lighthouse  0.1.0", "profile core: conforms", "It was signed by the key of the cluster's owner", "It was signed by the key that was given", "Conformance         required"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not in what the commands say:\n%s", want, said.String())
		}
	}
	if copied, err := os.ReadFile(filepath.Join(c.Home, "copy.report")); err != nil || !strings.Contains(said.String(), "required") || len(copied) == 0 {
		t.Errorf("the report that the cluster gave: %q, %v", copied, err)
	}
}
