package tutorial_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/build"
	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/follow"
	"github.com/reeveproject/reeve/e2e/internal/page"
	"github.com/reeveproject/reeve/e2e/internal/terminal"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

// published is where the page gets Reeve from. Here that is what is tested.
const published = "https://github.com/reeveproject/reeve"

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// TestYourFirstRole follows the tutorial "Your first role", from the clone to the end of the cluster.
func TestYourFirstRole(t *testing.T) {
	workspace := workspaceOf(t)
	text := page.Open(t, workspace, "docs/tutorial/your-first-role.md")
	for _, skipped := range text.Skipped() {
		t.Errorf("every command of the tutorial is run: %s", skipped)
	}
	c := cluster(t, workspace)
	c.Directory = filepath.Join(c.Home, "three")
	shell := terminal.New(t, c.Home, append(clonesFrom(t, workspace), "XDG_CONFIG_HOME="+filepath.Join(c.Home, "config"))...)
	shell.Path = machine(t)
	reader := follow.Reader{Run: func(line string) terminal.Result { return shell.Run(t, line) }}
	reader.Follow(t, text)
	c.NoProcesses(t)
}

// TestReadme follows what README.md tells a newcomer to do, in a clone.
func TestReadme(t *testing.T) {
	workspace := workspaceOf(t)
	text := page.Open(t, workspace, "README.md")
	c := cluster(t, workspace)
	clone := filepath.Join(c.Home, "reeve")
	c.Directory = filepath.Join(clone, "var", "dev")
	variables := append(clonesFrom(t, workspace), "XDG_CONFIG_HOME="+filepath.Join(c.Home, "config"))
	shell := terminal.New(t, c.Home, variables...)
	shell.Path = machine(t, "curl")
	other := terminal.New(t, clone, variables...)
	other.Path = shell.Path
	reader := follow.Reader{
		Run:   func(line string) terminal.Result { return shell.Run(t, line) },
		Names: map[string]func() string{"http://127.0.0.1:PORT": func() string { return c.Status(t).Role("lighthouse").URL() }},
	}
	var stop func()
	reader.Start = func(line, says string) { stop = other.Start(t, line, says) }
	reader.Follow(t, text)
	if stop == nil {
		t.Fatal("the cluster of README.md does not stay in the foreground")
	}
	// Ctrl-C stops all of it.
	stop()
	c.AwaitNoProcesses(t, time.Minute)
}

func workspaceOf(t *testing.T) string {
	t.Helper()
	workspace, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return workspace
}

// cluster is the one that a page makes, with the programs that the page builds. It is stopped when the test ends, wherever that is.
func cluster(t *testing.T, workspace string) *devcluster.Cluster {
	t.Helper()
	base, err := os.MkdirTemp("", "tu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	// Roles of every user pass through.
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	programs := &build.Programs{Workspace: workspace}
	c := devcluster.New(t, devcluster.Options{Programs: programs, Base: base})
	programs.Directory = filepath.Join(c.Home, "reeve", "bin")
	return c
}

// clonesFrom makes a repository of the workspace as it is, and returns the variables by which git takes it for the published one.
func clonesFrom(t *testing.T, workspace string) []string {
	t.Helper()
	repository := filepath.Join(t.TempDir(), "reeve.git")
	for _, arguments := range [][]string{
		{"init", "--quiet", "--initial-branch=main", "--bare", repository},
		{"--git-dir", repository, "--work-tree", workspace, "add", "--all"},
		{"--git-dir", repository, "--work-tree", workspace, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--no-verify", "--message=as it is tested"},
	} {
		command := exec.CommandContext(t.Context(), "git", arguments...)
		command.Dir = workspace
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	return []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + repository + ".insteadOf", "GIT_CONFIG_VALUE_0=" + published}
}

// machine is the PATH of a machine that has what the page asks for: Go, git, make, what is more, and what every machine has. There is no C compiler in it.
func machine(t *testing.T, more ...string) string {
	t.Helper()
	directory := t.TempDir()
	for _, program := range append(more,
		"git", "make", "bash", "sh", "basename", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "expr", "false", "find", "grep", "head", "id", "install", "ln", "ls", "mkdir",
		"mv", "printf", "pwd", "rm", "sed", "sleep", "sort", "tail", "test", "touch", "tr", "true", "uname", "wc",
	) {
		found, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(found, filepath.Join(directory, program)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return directory + ":" + filepath.Join(strings.TrimSpace(string(root)), "bin")
}
