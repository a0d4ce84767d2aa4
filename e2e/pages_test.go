package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pages "github.com/reeveproject/reeve/e2e/internal/page"
)

// languages are what code blocks of pages say that is in them. What is of a terminal is `console`, and a test runs it.
var languages = []string{"console", "text", "go", "javascript", "json", "yaml", "ini", "proto"}

// program begins a line that is a command without a prompt.
var program = regexp.MustCompile(`^\s*([$] |# [a-z]|node \S+\.m?js|(sudo |CGO_ENABLED=0 )?(reeved?|reeve-conformance|make|go|git|curl|npm|apt|apt-get|systemctl|echo|ssh|scp|docker|kubectl) [a-z./<-])`)

// TestEveryCommandIsRun holds that each command of each page is run by a test: the runner of the page follows it to its end. What is not run says so, and why.
func TestEveryCommandIsRun(t *testing.T) {
	t.Parallel()
	runners := make(map[string]pages.Runner)
	for _, runner := range pages.Runners() {
		if runners[runner.Page] != (pages.Runner{}) {
			t.Errorf("%s has two runners", runner.Page)
		}
		runners[runner.Page] = runner
		follows(t, runner)
	}
	commands := 0
	for name, text := range allPages(t) {
		blocks, err := pages.Blocks(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, block := range blocks {
			switch {
			case !slices.Contains(languages, block.Language):
				t.Errorf("%s:%d: a code block of %q: say one of %q", name, block.Line, block.Language, languages)
			// What is made from the commands themselves shows how they are called: see TestCommandsInTheTextExist.
			case block.Language == "text" && name != "docs/reference/cli.md":
				if i := slices.IndexFunc(block.Lines, program.MatchString); i >= 0 {
					t.Errorf("%s:%d: this is a command, which a block `console` is for: %s", name, block.Line+1+i, block.Lines[i])
				}
			}
		}
		parts, err := pages.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range parts {
			if i := slices.IndexFunc(part.Shown, program.MatchString); i >= 0 {
				t.Errorf("%s:%d: a command without its prompt: %s", name, part.Line, part.Shown[i])
			}
		}
		page := pages.Page{Name: name, Parts: parts}
		skipped := page.Skipped()
		for _, part := range skipped {
			t.Logf("not run: %s", part)
		}
		all := len(slices.DeleteFunc(parts, func(part pages.Part) bool { return part.Kind == pages.Directive }))
		commands += all - len(skipped)
		_, has := runners[name]
		switch {
		case !has && all > len(skipped):
			t.Errorf("%s has %d commands, and no test runs them: write one, and name it in page.Runners", name, all-len(skipped))
		case has && all == len(skipped):
			t.Errorf("%s has a runner, and no command that is run", name)
		}
		delete(runners, name)
	}
	for name := range runners {
		t.Errorf("page.Runners names %s, which is not there", name)
	}
	t.Logf("%d commands are run", commands)
	if commands < 150 {
		t.Errorf("the pages have %d commands", commands)
	}
}

// follows holds that the test is there which is to run a page, and that it gets the page by page.Open, after which there is no way to leave a command out.
func follows(t *testing.T, runner pages.Runner) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", runner.Package, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	begin := "\nfunc " + runner.Test + "(t *testing.T) {\n"
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, body, found := strings.Cut(string(text), begin)
		if !found {
			continue
		}
		if body, _, _ = strings.Cut(body, "\n}\n"); !strings.Contains(body, `"`+runner.Page+`"`) {
			t.Errorf("%s of %s does not follow %s", runner.Test, runner.Package, runner.Page)
		}
		return
	}
	t.Errorf("there is no %s in %s, which is to follow %s", runner.Test, runner.Package, runner.Page)
}

// allPages are the texts of all pages of the project, by their paths.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	listed, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for name := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// made is what a command of a page makes that must never be committed: the directory of `reeve dev up`, and the file of a private key.
var made = regexp.MustCompile(`reeve (?:dev up\b.*--dir|(?:owner|operator) key|recovery-key new) (?:\./)?([\w.-]+)`)

// TestWhatPagesMakeIsIgnored holds that a reader who follows a page in a checkout cannot commit the keys of the cluster that it makes.
func TestWhatPagesMakeIsIgnored(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "rev-parse", "--is-inside-work-tree").CombinedOutput(); err != nil {
		t.Skipf("there is no work tree of git, so that nothing is ignored there (%v): %s", err, out)
	}
	found := 0
	for name, text := range allPages(t) {
		if strings.HasPrefix(name, "docs/reference/") {
			continue // its examples are of no reader's
		}
		blocks, err := pages.Blocks(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, block := range blocks {
			for _, line := range block.Lines {
				path := made.FindStringSubmatch(line)
				if path == nil {
					continue
				}
				found++
				// Something in it: of a directory that is not there git does not know that it is one.
				file := path[1]
				if strings.Contains(line, "dev up") {
					file += "/owner.key"
				}
				if out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "check-ignore", file).CombinedOutput(); err != nil {
					t.Errorf("%s: git does not ignore %s, which `%s` makes (%v): %s", name, file, line, err, out)
				}
			}
		}
	}
	if found < 7 {
		t.Errorf("only %d commands of the pages make something", found)
	}
}
