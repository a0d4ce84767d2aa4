package reference_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packages are those of the SDK that authors of roles use.
var packages = []string{"role", "consensus", "consensus/consensustest", "event", "roletest", "conformance", "conformance/store", "peercred"}

const module = "github.com/reeveproject/reeve/sdk/"

// TestSDK holds that the pages of docs/reference/sdk are those of the packages.
func TestSDK(t *testing.T) {
	made := make(map[string]bool)
	for _, name := range packages {
		page := "sdk/" + strings.ReplaceAll(name, "/", "-") + ".md"
		made[page] = true
		golden(t, page, pageOf(t, name))
	}
	only(t, "sdk/*.md", made)
}

// gopher writes the page of one package.
type gopher struct {
	strings.Builder
	files   *token.FileSet
	parser  *comment.Parser
	printer *comment.Printer
}

func pageOf(t *testing.T, name string) string {
	t.Helper()
	directory := filepath.Join(workspace, "sdk", name)
	listed, err := build.Default.ImportDir(directory, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := &gopher{files: token.NewFileSet()}
	var parsed []*ast.File
	// The examples are in the files of tests of either package.
	for _, file := range slices.Concat(listed.GoFiles, listed.TestGoFiles, listed.XTestGoFiles) {
		text, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parser.ParseFile(g.files, file, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, tree)
	}
	p, err := doc.NewFromFiles(g.files, parsed, module+name)
	if err != nil {
		t.Fatal(err)
	}
	g.parser, g.printer = p.Parser(), p.Printer()
	g.printer.HeadingLevel = 3
	g.printer.HeadingID = func(*comment.Heading) string { return "" }
	g.printer.DocLinkURL = g.link
	fmt.Fprintf(g, "# Package %s\n\n%s\n```go\nimport %q\n```\n", p.Name, generated, module+name)
	g.text(p.Doc)
	g.examples(p.Examples)
	g.values("Constants", p.Consts)
	g.values("Variables", p.Vars)
	if len(p.Funcs) > 0 {
		g.WriteString("\n## Functions\n")
	}
	for _, f := range p.Funcs {
		g.function(f)
	}
	for _, t := range p.Types {
		fmt.Fprintf(g, "\n## type %s\n", t.Name)
		g.code(t.Decl)
		g.text(t.Doc)
		g.examples(t.Examples)
		g.values("", slices.Concat(t.Consts, t.Vars))
		for _, f := range slices.Concat(t.Funcs, t.Methods) {
			g.function(f)
		}
	}
	return g.String()
}

// link is where a name in a comment is described: in a page of ours, or where all of Go's are. On the same page it is near enough.
func (g *gopher) link(l *comment.DocLink) string {
	name, ours := strings.CutPrefix(l.ImportPath, module)
	switch {
	case l.ImportPath == "":
		return ""
	case ours && slices.Contains(packages, name):
		return strings.ReplaceAll(name, "/", "-") + ".md"
	default:
		return l.DefaultURL("https://pkg.go.dev")
	}
}

// text writes a comment.
func (g *gopher) text(text string) {
	if text != "" {
		g.WriteString("\n" + markdown(g.printer.Markdown(g.parser.Parse(text))))
	}
}

// markdown is what the printer of comments makes, with fences about the code, which it indents.
func markdown(printed []byte) string {
	var text strings.Builder
	code := false
	pending := 0
	for line := range strings.Lines(string(printed)) {
		rest, indented := strings.CutPrefix(line, "\t")
		switch {
		case strings.TrimSpace(line) == "" && code:
			pending++
			continue
		case indented && !code:
			text.WriteString("```go\n")
			code = true
		case !indented && code:
			text.WriteString("```\n")
			code = false
		}
		text.WriteString(strings.Repeat("\n", pending))
		pending = 0
		if code {
			line = rest
		}
		text.WriteString(line)
	}
	if code {
		text.WriteString("```\n")
	}
	return text.String()
}

// code writes a declaration as its source has it, without the bodies of functions.
func (g *gopher) code(node any) {
	var text strings.Builder
	if err := format.Node(&text, g.files, node); err != nil {
		fmt.Fprintf(&text, "// %v", err)
	}
	fmt.Fprintf(g, "\n```go\n%s\n```\n", text.String())
}

func (g *gopher) values(title string, all []*doc.Value) {
	if len(all) > 0 && title != "" {
		fmt.Fprintf(g, "\n## %s\n", title)
	}
	for _, v := range all {
		g.code(v.Decl)
		g.text(v.Doc)
	}
}

func (g *gopher) function(f *doc.Func) {
	title := "func " + f.Name
	if f.Recv != "" {
		title = "func (" + f.Recv + ") " + f.Name
	}
	fmt.Fprintf(g, "\n### %s\n", title)
	declaration := *f.Decl
	declaration.Body, declaration.Doc = nil, nil
	g.code(&declaration)
	g.text(f.Doc)
	g.examples(f.Examples)
}

func (g *gopher) examples(all []*doc.Example) {
	for _, example := range all {
		title := "Example"
		if example.Suffix != "" {
			title += " (" + strings.ReplaceAll(example.Suffix, "_", " ") + ")"
		}
		fmt.Fprintf(g, "\n%s:\n", title)
		g.text(example.Doc)
		var text strings.Builder
		if err := format.Node(&text, g.files, example.Code); err != nil {
			fmt.Fprintf(&text, "// %v", err)
		}
		body := strings.TrimSpace(text.String())
		if inner, is := strings.CutPrefix(body, "{"); is {
			body = outdented(strings.TrimSuffix(inner, "}"))
		}
		fmt.Fprintf(g, "\n```go\n%s\n```\n", body)
		if example.Output != "" {
			fmt.Fprintf(g, "\nIt prints:\n\n```text\n%s\n```\n", strings.TrimSpace(example.Output))
		}
	}
}

// outdented is the body of a function without its indent.
func outdented(body string) string {
	lines := strings.Split(strings.Trim(body, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "\t")
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
