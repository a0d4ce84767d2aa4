package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
)

// TestOperateOneNode runs every command of the page "Operate one node", in its order.
func TestOperateOneNode(t *testing.T) {
	t.Parallel()
	asEveryUser(t, func(t *testing.T, c *devcluster.Cluster) {
		if err := os.Symlink(suite.programs.Lighthouse(), filepath.Join(c.Home, "lighthouse")); err != nil {
			t.Fatal(err)
		}
		commands := commandsOf(t, "operate-one-node.md")
		for _, command := range commands {
			// The page calls ./node what is the dev directory here, and 192.0.2.1:7443 the curator.
			command = strings.ReplaceAll(command, "./node", c.Directory)
			if strings.Contains(command, "192.0.2.1:7443") {
				command = strings.ReplaceAll(command, "192.0.2.1:7443", c.Status(t).Cluster.Curators[0])
			}
			runCommand(t, c, command)
		}
		c.NoProcesses(t)
	})
}

// runCommand runs a command of a page in a shell, as somebody would who follows the page. One that begins with "!" is to be refused.
func runCommand(t *testing.T, c *devcluster.Cluster, command string) {
	t.Helper()
	line, refused := strings.CutPrefix(command, "! ")
	result := c.Run(t, "/bin/bash", "-c", "set -o pipefail; PATH="+suite.programs.Directory+":$PATH; "+line)
	result.Command = line
	switch {
	case refused && (result.Code == 0 || strings.TrimSpace(result.Stderr) == ""):
		t.Fatalf("is not refused, or does not say why: %s", result)
	case !refused && result.Code != 0:
		t.Fatal(result)
	}
	t.Log(result)
}

// consoleBlock matches what a page shows of a terminal.
var consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

// commandsOf returns the commands that a page of docs/how-to shows.
func commandsOf(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(suite.programs.Workspace, "docs", "how-to", page))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, block := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				t.Fatalf("%s shows something else than a command: %q", page, line)
			}
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) < 10 {
		t.Fatalf("%s has %d commands", page, len(commands))
	}
	return commands
}
