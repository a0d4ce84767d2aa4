package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	pages "github.com/reeveproject/reeve/e2e/internal/page"
)

var (
	codeBlock    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inlineCode   = regexp.MustCompile("`([^`\n]+)`")
	flagsInTable = regexp.MustCompile("(?m)^\\| `([^`]+)`")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z-]+):.*## `)
)

// TestCommandsInTheTextExist looks for every command that a page names in its text, or has in a block that is not run, in the reference of the command line, with its flags, or in the Makefile.
func TestCommandsInTheTextExist(t *testing.T) {
	t.Parallel()
	all := allPages(t)
	flags := flagsOf(all["docs/reference/cli.md"])
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := []string{"package-amd64", "package-arm64"}
	for _, found := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, found[1])
	}
	found := 0
	for name, text := range all {
		// What was decided is not changed when a command is.
		if strings.HasPrefix(name, "docs/decisions/") {
			continue
		}
		var named []string
		// What is made of the commands themselves has examples in its blocks.
		blocks, err := pages.Blocks(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, block := range blocks {
			if name == "docs/reference/cli.md" {
				named = append(named, block.Lines...)
			}
		}
		for _, code := range inlineCode.FindAllStringSubmatch(strings.ReplaceAll(codeBlock.ReplaceAllString(text, ""), "\n", " "), -1) {
			named = append(named, code[1])
		}
		parts, err := pages.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range parts {
			if part.Kind == pages.Command {
				named = append(named, part.Text)
			}
		}
		for _, line := range named {
			words := strings.Fields(line)
			switch {
			case len(words) < 2:
			case words[0] == "make":
				found++
				for _, word := range words[1:] {
					if !strings.Contains(word, "=") && word != "…" && !slices.Contains(targets, word) && wordOnly.MatchString(word) && !strings.HasSuffix(name, "your-first-role.md") {
						t.Errorf("%s names a target that the Makefile has not: %s", name, line)
					}
				}
			case words[0] == "reeve":
				found++
				if problem := unknown(flags, words[1:]); problem != "" {
					t.Errorf("%s names %s: %s", name, problem, line)
				}
			}
		}
	}
	if found < 150 {
		t.Errorf("the pages name %d commands", found)
	}
}

var wordOnly = regexp.MustCompile(`^[a-z-]+$`)

// flagsOf are the flags of each command in the reference; those of every command by the empty name.
func flagsOf(reference string) map[string][]string {
	flags := make(map[string][]string)
	for section := range strings.SplitSeq(reference, "\n## ") {
		title, rest, _ := strings.Cut(section, "\n")
		name, isCommand := strings.CutPrefix(title, "reeve ")
		if !isCommand {
			name = ""
		}
		for _, found := range flagsInTable.FindAllStringSubmatch(rest, -1) {
			for word := range strings.FieldsSeq(strings.ReplaceAll(found[1], ",", " ")) {
				if strings.HasPrefix(word, "-") {
					flags[name] = append(flags[name], word)
				}
			}
		}
		flags[name] = append(flags[name], "--help")
	}
	return flags
}

// unknown is what a command line of reeve has that there is not; empty: nothing. A group of commands is named by what its commands begin with.
func unknown(flags map[string][]string, words []string) string {
	name, group := "", ""
	for n := len(words); n > 0 && name == ""; n-- {
		joined := strings.Join(words[:n], " ")
		if flags[joined] != nil {
			name = joined
		}
		for of := range flags {
			if strings.HasPrefix(of, joined+" ") {
				group = joined
			}
		}
	}
	switch {
	case name == "" && group == "" && !strings.HasPrefix(words[0], "-"):
		return "a command that does not exist"
	case name == "":
		return ""
	}
	for _, word := range words {
		// What comes then belongs to another program.
		if strings.ContainsAny(word, "|;&>#") {
			break
		}
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "-") && flag != "-" && !slices.Contains(flags[name], flag) && !slices.Contains(flags[""], flag) {
			return "a flag that `reeve " + name + "` has not"
		}
	}
	return ""
}
