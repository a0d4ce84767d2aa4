package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/follow"
	pages "github.com/reeveproject/reeve/e2e/internal/page"
	"github.com/reeveproject/reeve/e2e/internal/roleplugin"
	"github.com/reeveproject/reeve/e2e/internal/terminal"
)

// TestOperateOneNode runs every command of the page "Operate one node", in its order.
func TestOperateOneNode(t *testing.T) {
	t.Parallel()
	// It also asks for what the first version does not ask for.
	later, err := roleplugin.BuildExample(t.Context(), suite.programs.Workspace, suite.base, map[string]string{
		`Version: "0.1.0"`: `Version: "0.2.0"`, "role.GrantListen(role.AnyPort)": `role.GrantListen(role.AnyPort), role.GrantConnect("443")`,
	})
	if err != nil {
		t.Fatal(err)
	}
	asAnyUser(t, func(t *testing.T, c *devcluster.Cluster) {
		for name, file := range map[string]string{"lighthouse": suite.programs.Lighthouse(), "lighthouse-0.2.0": later} {
			if err := os.Symlink(file, filepath.Join(c.Home, name)); err != nil {
				t.Fatal(err)
			}
		}
		reader := follow.Reader{
			Run: func(line string) terminal.Result { return runLine(t, c, line) },
			Names: map[string]func() string{
				"./node":         func() string { return c.Directory },
				"192.0.2.1:7443": func() string { return c.Status(t).Cluster.Curators[0] },
			},
		}
		reader.Follow(t, pages.Open(t, suite.programs.Workspace, "docs/how-to/operate-one-node.md"))
		c.NoProcesses(t)
	})
}

// TestReadmeOfLighthouse follows the README of the example, in a copy of it.
func TestReadmeOfLighthouse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, part := range []string{"examples/lighthouse", "sdk", "proto"} {
		if err := os.CopyFS(filepath.Join(c.Home, part), os.DirFS(filepath.Join(suite.programs.Workspace, part))); err != nil {
			t.Fatal(err)
		}
	}
	c.Up(t)
	shell := terminal.New(t, filepath.Join(c.Home, "examples", "lighthouse"), "GOWORK=off", "XDG_CONFIG_HOME="+filepath.Join(c.Home, "config"))
	shell.Path = suite.programs.Directory + ":" + shell.Path
	if err := os.Mkdir(filepath.Join(shell.Directory, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(c.Directory, filepath.Join(shell.Directory, "var", "dev")); err != nil {
		t.Fatal(err)
	}
	reader := follow.Reader{
		Run: func(line string) terminal.Result { return shell.Run(t, line) },
		Names: map[string]func() string{
			"NODE":                   func() string { return c.Status(t).Node.ID },
			"http://127.0.0.1:41234": func() string { return c.Status(t).Role("lighthouse").URL() },
			"127.0.0.1:8080":         func() string { return "127.0.0.1:0" },
		},
	}
	reader.Follow(t, pages.Open(t, suite.programs.Workspace, "examples/lighthouse/README.md"))
}

// runLine runs a command of a page in a shell, as somebody would who follows the page. One that begins with "!" is to be refused, with a reason.
func runLine(t *testing.T, c *devcluster.Cluster, line string) terminal.Result {
	t.Helper()
	command, refused := strings.CutPrefix(line, "! ")
	result := c.Run(t, "/bin/bash", "-c", "set -o pipefail; PATH="+suite.programs.Directory+":$PATH; "+command)
	if refused {
		switch {
		case result.Code == 0 || strings.TrimSpace(result.Stderr) == "":
			t.Fatalf("%s: is not refused, or does not say why: %s", line, result)
		default:
			result.Code = 0
		}
	}
	return terminal.Result{Command: line, Output: result.Stdout + result.Stderr, Code: result.Code}
}
