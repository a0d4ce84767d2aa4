package command_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/reeveproject/reeve/cli/command"
	"github.com/reeveproject/reeve/cli/fault"
)

// each calls see with every command.
func each(cmd *cobra.Command, see func(*cobra.Command)) {
	see(cmd)
	for _, inner := range cmd.Commands() {
		each(inner, see)
	}
}

// run runs a command line in a directory in which there is no cluster.
func run(t *testing.T, arguments ...string) (fault.Code, string, string) {
	t.Helper()
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	code := command.Run(context.Background(), command.Environment{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Now: time.Now, Name: "reeve", Executable: "/nowhere/reeve", Version: "1.2.3-test",
		HostSocket: "/nowhere/node.sock",
	}, arguments)
	return code, stdout.String(), stderr.String()
}

// TestWrongCommandLines gives every command what it does not take: each says so with exit code 2, before anything is done, and what to do next.
func TestWrongCommandLines(t *testing.T) {
	commands := 0
	each(command.Tree(), func(cmd *cobra.Command) {
		commands++
		path := strings.Fields(cmd.CommandPath())[1:]
		_, names, _ := strings.Cut(cmd.Use, " ")
		lines := [][]string{{"--no-such-flag"}, {"--output=xml"}}
		if !strings.HasSuffix(names, "...]") {
			lines = append(lines, strings.Fields("a b c d e f g h i"))
		}
		if regexp.MustCompile(`^[A-Z]`).MatchString(names) {
			lines = append(lines, nil)
		}
		for _, line := range lines {
			t.Run(strings.Join(append(append([]string{}, path...), line...), " "), func(t *testing.T) {
				code, stdout, stderr := run(t, append(append([]string{}, path...), line...)...)
				if code != fault.Usage {
					t.Errorf("exit code %d, want %d: %s", code, fault.Usage, stderr)
				}
				if want := fmt.Sprintf("See `%s --help`.\n", cmd.CommandPath()); !strings.HasSuffix(stderr, want) {
					t.Errorf("it says %q, which does not end with %q", stderr, want)
				}
				if stdout != "" {
					t.Errorf("it writes %q", stdout)
				}
			})
		}
	})
	if commands < 30 {
		t.Errorf("only %d commands were found", commands)
	}
}

// TestRemovedCommands holds that a command of a former version names the one that does the same, also with flags that only that one has.
func TestRemovedCommands(t *testing.T) {
	for line, stays := range map[string]string{
		"role": "reeve node role", "role add n r --config f": "reeve node role", "role --dir d show n r -o json": "reeve node role", "node show n": "reeve describe node",
		"node show n --show-configuration": "reeve describe node",
	} {
		t.Run(line, func(t *testing.T) {
			code, stdout, stderr := run(t, strings.Fields(line)...)
			if code != fault.Usage || stdout != "" || !strings.Contains(stderr, "Use `"+stays+"`") {
				t.Errorf("exit code %d, %q: %s", code, stdout, stderr)
			}
		})
	}
}

// TestNoCluster runs every command that needs a cluster, and nothing else, where there is none: each says how to name one.
func TestNoCluster(t *testing.T) {
	lines := []string{
		"status", "node list", "node role list n", "node role add n r", "node role remove n r", "node role restart n r", "node metrics", "plugin list", "plugin show p", "plugin approve p", "plugin diff p", "plugin remove p", "plugin grant p r:g", "plugin withdraw p r:g", "policy show",
		"policy set isolation=required", "node role show n r", "node role list n",
		"store status", "store recover", "store snapshot f", "store snapshot f --unencrypted", "store snapshot list", "store snapshot get n f", "policy set snapshots=interval=6h,keep=7", "policy set recovery-recipient=age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", "logs n r", "logs n r -f", "events", "events -w", "describe node n", "describe role n r", "wait n --for healthy",
		"operator list", "audit", "whoami", "status --watch", "policy set cuk-sources=recovery", "node unlock", "node seal", "node keys rotate", "node reseal",
		"ticket create", "ticket list", "ticket revoke 0123", "node approve n", "node accept n", "node label n a=b", "node drain n", "node decommission n", "node delete n",
		"cert list", "cert rotate prepare", "kubernetes kubeconfig", "kubernetes credential", "kubernetes pki show", "kubernetes pki rotate prepare",
		"kubernetes check", "kubernetes check n", "kubernetes image load -",
	}
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			code, _, stderr := run(t, strings.Fields(line)...)
			if code != fault.Usage || !strings.Contains(stderr, "no cluster is named") || !strings.Contains(stderr, "--dir") {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
}

// TestErrorsAreClean holds that an error writes nothing to the terminal but text.
func TestErrorsAreClean(t *testing.T) {
	code, _, stderr := run(t, "node", "x\x1b[2J\u009b31m\ny")
	if code != fault.Usage || strings.ContainsAny(stderr, "\x1b\u009b") {
		t.Errorf("exit code %d: %q", code, stderr)
	}
	code, _, stderr = run(t, "describe", "node", "n", "--dir", "x\u009b31m\x1b")
	if code == fault.OK || strings.ContainsAny(stderr, "\x1b\u009b") {
		t.Errorf("exit code %d: %q", code, stderr)
	}
}

// TestDestructiveCommandsHaveDryRun holds that what changes something can be tried out.
func TestDestructiveCommandsHaveDryRun(t *testing.T) {
	// What these change is only the caller's own: a session, a file or directory that must not be there yet, a cluster in a directory that is new, a
	// configuration for kubectl.
	harmless := map[string]bool{
		"reeve login": true, "reeve logout": true, "reeve context use": true, "reeve bundle": true, "reeve dev up": true, "reeve operator key": true, "reeve owner key": true,
		"reeve recovery-key new": true, "reeve plugin test": true, "reeve plugin new": true, "reeve kubernetes kubeconfig": true, "reeve kubernetes credential": true,
	}
	reading := regexp.MustCompile(` (status|list|show|inspect|get|verify|diff|check|metrics|logs|events|node|role|wait|version|doctor|whoami|audit|bash|zsh|fish|ca)$`)
	each(command.Tree(), func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		if cmd.HasSubCommands() || reading.MatchString(path) || harmless[path] {
			return
		}
		if cmd.Flags().Lookup("dry-run") == nil {
			t.Errorf("%s has no --dry-run", path)
		}
	})
}

const referenceFile = "../../docs/reference/cli.md"

// TestReference holds that the reference of the command line is that of the commands. UPDATE_GOLDEN=1 writes it anew.
func TestReference(t *testing.T) {
	got := reference(command.Tree())
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(referenceFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("docs/reference/cli.md is not that of the commands: run `UPDATE_GOLDEN=1 go test ./command -run TestReference` in cli")
	}
}

func reference(root *cobra.Command) string {
	var text strings.Builder
	text.WriteString("# The command line\n\n<!-- Generated from the commands: `UPDATE_GOLDEN=1 go test ./command -run TestReference` in cli. -->\n\n")
	text.WriteString(prose(root.Long) + "\n## Flags of every command\n\n" + flagTable(root.PersistentFlags()))
	each(root, func(cmd *cobra.Command) {
		if cmd == root || hidden(cmd) || cmd.HasSubCommands() {
			return
		}
		fmt.Fprintf(&text, "\n## %s\n\n%s.\n\n```text\n%s\n```\n", cmd.CommandPath(), cmd.Short, cmd.UseLine())
		if cmd.Long != "" {
			text.WriteString("\n" + prose(cmd.Long))
		}
		if cmd.Example != "" {
			text.WriteString("\n" + prose(cmd.Example))
		}
		if flags := flagTable(cmd.LocalNonPersistentFlags()); flags != "" {
			text.WriteString("\n" + flags)
		}
	})
	return text.String()
}

// hidden reports whether a command, or one that it is below, is shown to nobody.
func hidden(cmd *cobra.Command) bool {
	return cmd.Hidden || cmd.HasParent() && hidden(cmd.Parent())
}

// prose is a help text in Markdown: what is indented there is a block of code.
func prose(text string) string {
	var blocks []string
	for block := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		lead, code, found := strings.Cut(block, "\n  ")
		switch {
		case strings.HasPrefix(block, "  "):
			block = "```text\n" + block + "\n```"
		case found:
			block = lead + "\n\n```text\n  " + code + "\n```"
		}
		blocks = append(blocks, block)
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

func flagTable(flags *pflag.FlagSet) string {
	var rows strings.Builder
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" {
			return
		}
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(flag)
		if kind != "" {
			name += " " + kind
		}
		if flag.DefValue != "" && flag.DefValue != "false" && flag.DefValue != "[]" && flag.DefValue != "0" && flag.DefValue != "0s" && !strings.Contains(usage, "(default") {
			usage += " (default " + flag.DefValue + ")"
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", strings.ReplaceAll(name, "|", "\\|"), strings.ReplaceAll(usage, "|", "\\|"))
	})
	if rows.Len() == 0 {
		return ""
	}
	return "| flag | meaning |\n|---|---|\n" + rows.String()
}
