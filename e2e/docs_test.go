package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pages "github.com/reeveproject/reeve/e2e/internal/page"
)

// TestRecipes holds that the pieces of Go in pages, first of all in "Write a role", are parts of the SDK's examples, which are compiled and run.
func TestRecipes(t *testing.T) {
	t.Parallel()
	var examples []string
	for _, pattern := range []string{"../sdk/role/example*_test.go", "../sdk/consensus/example*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			examples = append(examples, unindented(string(text)))
		}
	}
	checked := 0
	for name, text := range allPages(t) {
		// What is made of the examples has them; the tests in the SDK's README are of plugins that are not there.
		if strings.HasPrefix(name, "docs/reference/") || name == "sdk/README.md" {
			continue
		}
		blocks, err := pages.Blocks(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks {
			if block.Language != "go" {
				continue
			}
			checked++
			piece := unindented(strings.Join(block.Lines, "\n") + "\n")
			if !slices.ContainsFunc(examples, func(example string) bool { return strings.Contains(example, piece) }) {
				t.Errorf("%s:%d: no example of the SDK has:\n%s", name, block.Line, strings.Join(block.Lines, "\n"))
			}
		}
	}
	if checked < 10 {
		t.Errorf("the pages have %d pieces of Go", checked)
	}
}

// unindented is a text of which each line begins a line of the result.
func unindented(text string) string {
	var result strings.Builder
	result.WriteByte('\n')
	for line := range strings.Lines(text) {
		result.WriteString(strings.TrimLeft(line, "\t"))
	}
	return result.String()
}

// link is one of Markdown to a file or within one: its path, and what it leads to in there.
var link = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)

// heading is one of a page; punctuation is what is not in its anchor.
var (
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	punctuation = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks holds that what a page of the project refers to is there: the file, and the heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := allPages(t)
	anchors := make(map[string]map[string]bool)
	for name, text := range all {
		anchors[name] = make(map[string]bool)
		for _, found := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			anchors[name][strings.ReplaceAll(strings.ToLower(punctuation.ReplaceAllString(found[1], "")), " ", "-")] = true
		}
	}
	checked := 0
	for name, text := range all {
		for _, found := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			checked++
			to := filepath.Join(filepath.Dir(name), found[1])
			if found[1] == "" {
				to = name
			}
			if _, err := os.Stat(filepath.Join("..", to)); err != nil {
				t.Errorf("%s refers to %s, which is not there", name, found[1])
			} else if found[2] != "" && anchors[to] != nil && !anchors[to][found[2]] {
				t.Errorf("%s refers to %s, which has no heading %q", name, to, found[2])
			}
		}
	}
	if checked < 500 {
		t.Errorf("there are %d links", checked)
	}
}

// TestMapOfDocs holds that docs/README.md leads to every page of the documentation, and README.md to it. The decisions have a list of their own.
func TestMapOfDocs(t *testing.T) {
	t.Parallel()
	all := allPages(t)
	for name := range all {
		directory, is := strings.CutPrefix(name, "docs/")
		from := "docs/README.md"
		if decision, of := strings.CutPrefix(directory, "decisions/"); of && decision != "README.md" {
			from, directory = "docs/decisions/README.md", decision
		}
		if is && name != from && !strings.Contains(all[from], "]("+directory+")") {
			t.Errorf("%s does not lead to %s", from, name)
		}
	}
	if !strings.Contains(all["README.md"], "](docs/README.md)") {
		t.Error("README.md does not lead to docs/README.md")
	}
}

// quoted is a text in backticks, and said a command of reeve in one.
var (
	quoted = regexp.MustCompile("`([^`]+)`")
	said   = regexp.MustCompile("^reeve ([a-z -]*[a-z])")
)

// TestTroubleshooting holds that each message on the page "Troubleshoot" is one that the code has, in one line of it, and each command one of reeve.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	const name = "docs/how-to/troubleshoot.md"
	text := allPages(t)[name]
	reference, err := os.ReadFile("../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	code := codeLines(t)
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[0], "`") {
			continue
		}
		rows++
		for _, message := range quoted.FindAllStringSubmatch(cells[0], -1) {
			if !slices.ContainsFunc(code, func(line string) bool { return hasParts(line, strings.Split(message[1], "…")) }) {
				t.Errorf("%s: nothing says %q", name, message[1])
			}
		}
		commands := 0
		for _, command := range quoted.FindAllStringSubmatch(cells[2], -1) {
			commands++
			if words := said.FindStringSubmatch(command[1]); words != nil && !strings.Contains(string(reference), "\n## reeve "+strings.TrimSpace(strings.Split(words[1], " -")[0])+"\n") {
				t.Errorf("%s: there is no command %q", name, command[1])
			}
		}
		if commands == 0 {
			t.Errorf("%s: %s names no command", name, cells[0])
		}
	}
	if rows < 20 {
		t.Errorf("%s has %d symptoms", name, rows)
	}
}

// codeLines are the lines of all programs, without those of tests.
func codeLines(t *testing.T) (lines []string) {
	t.Helper()
	for _, room := range []string{"core", "cli", "plugins", "proto", "sdk"} {
		err := filepath.WalkDir(filepath.Join("..", room), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
				return err
			}
			content, err := os.ReadFile(path)
			for line := range strings.Lines(string(content)) {
				if line = strings.TrimSpace(line); !strings.HasPrefix(line, "//") {
					lines = append(lines, line)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

// hasParts says whether a line has all parts, one after another.
func hasParts(line string, parts []string) bool {
	for _, part := range parts {
		_, rest, found := strings.Cut(line, strings.TrimSpace(part))
		if !found {
			return false
		}
		line = rest
	}
	return true
}
