// Package page reads pages of docs as their tests do: the commands of a page, what it shows of their output, and the comments that say to the test what readers need not be told. It owns
// nothing, and runs nothing.
package page

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Part is one of what a page has for its test, in the order of the page.
type Part struct {
	Kind Kind
	// Line is where it is in the page, Text the command or the directive.
	Line int
	Text string
	// Block is the number of the code block.
	Block int
	// Root says that a command is run on a node, and not where the cluster is managed.
	Root bool
	// Shown is what the page shows of the output of a command.
	Shown []string
}

// Kind is that of a part.
type Kind int

// The kinds of parts.
const (
	// Command is a line of a code block `console` that begins with "$ " or "# ".
	Command Kind = iota
	// Output is a code block `console` without a command.
	Output
	// Directive is a comment `<!-- test: … -->`, which readers do not see: it says what happens between two commands, or what is expected of the next one.
	Directive
)

var directiveLine = regexp.MustCompile(`^\s*<!-- test: (.*) -->\s*$`)

// Parse finds the parts of a page.
func Parse(text string) ([]Part, error) {
	blocks, directives, err := split(text)
	if err != nil {
		return nil, err
	}
	var parts []Part
	for _, block := range blocks {
		if block.Language != "console" {
			continue
		}
		found, err := block.parts()
		if err != nil {
			return nil, err
		}
		parts = append(parts, found...)
	}
	parts = append(parts, directives...)
	slices.SortStableFunc(parts, func(a, b Part) int { return a.Line - b.Line })
	return parts, nil
}

// parts are the commands of the block, or what it shows without one.
func (b Block) parts() ([]Part, error) {
	var parts []Part
	for i, line := range b.Lines {
		number := b.Line + 1 + i
		switch sign, rest, _ := strings.Cut(line, " "); {
		case sign == "$" || sign == "#":
			if len(parts) > 0 && parts[len(parts)-1].Kind == Output {
				return nil, fmt.Errorf("line %d: a command after what is no command's output", number)
			}
			parts = append(parts, Part{Kind: Command, Line: number, Text: withoutRemark(rest), Root: sign == "#"})
		case len(parts) == 0:
			parts = append(parts, Part{Kind: Output, Line: number, Shown: []string{line}})
		default:
			last := &parts[len(parts)-1]
			// A command goes on where its line ends so.
			if last.Kind == Command && len(last.Shown) == 0 && strings.HasSuffix(last.Text, "\\") {
				last.Text = strings.TrimSpace(strings.TrimSuffix(last.Text, "\\")) + " " + withoutRemark(line)
				continue
			}
			last.Shown = append(last.Shown, line)
		}
	}
	for i := range parts {
		parts[i].Block = b.Number
	}
	return parts, nil
}

// withoutRemark cuts off what a page says behind a command: "  # …".
func withoutRemark(text string) string {
	text, _, _ = strings.Cut(text, "  # ")
	return strings.TrimSpace(text)
}

var (
	digits = regexp.MustCompile(`\d+`)
	spaces = regexp.MustCompile(`[ \t]+`)
)

// Unlike returns the first line of what a page shows that is not in a command's output, in the order of the page; empty: all are. A line is the same if it is so but for how
// much space is in it and the numbers; "…" stands for anything, and in a line of its own for lines.
func Unlike(shown []string, got string) string {
	for _, line := range shown {
		line = strings.TrimSpace(line)
		if line == "" || line == "…" {
			continue
		}
		at := regexp.MustCompile(`(?m)^[ \t]*` + Shape(line) + `[ \t]*$`).FindStringIndex(got)
		if at == nil {
			return line
		}
		got = got[at[1]:]
	}
	return ""
}

// Shape is the pattern of what is like a line.
func Shape(line string) string {
	pattern := digits.ReplaceAllString(regexp.QuoteMeta(line), `\d+`)
	return strings.ReplaceAll(spaces.ReplaceAllString(pattern, `[ \t]+`), "…", ".*")
}
