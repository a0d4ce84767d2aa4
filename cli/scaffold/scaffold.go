package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/mod/module"

	"github.com/reeveproject/reeve/proto/identity"
)

//go:embed templates
var templates embed.FS

// Plugin is what to write.
type Plugin struct {
	// Name is that of the plugin, of its executable and of its role.
	Name string
	// Module is the path of the Go module; "": example.com/ and the name, which nobody else can have published.
	Module string
	// Directory is where to write the module. It must not exist, or be empty.
	Directory string
	// Checkout is a checkout of Reeve, against which the module is built until the SDK is published.
	Checkout string
	// Store says that the role keeps something in the consensus store.
	Store bool
	// ignored is a directory in it into which Go does not look; "": there is none.
	ignored string
}

// Problem is why a plugin cannot be written as it was asked for. Nothing was written.
type Problem struct {
	// Summary says what is wrong, Advice what to do about it.
	Summary, Advice string
}

// Error implements error.
func (p *Problem) Error() string { return p.Summary + ". " + p.Advice }

// file is a file of the module.
type file struct {
	name string
	mode os.FileMode
	// template is that of its content.
	template string
}

func (p Plugin) files() []file {
	kind := "hello"
	if p.Store {
		kind = "store"
	}
	return []file{
		{"main.go", 0o644, kind + "_main.go.tmpl"},
		{"role_test.go", 0o644, kind + "_role_test.go.tmpl"},
		{"conformance_test.go", 0o644, "conformance_test.go.tmpl"},
		{"Makefile", 0o644, "Makefile.tmpl"},
		{"README.md", 0o644, "README.md.tmpl"},
		{".gitignore", 0o644, "gitignore.tmpl"},
		{".github/workflows/ci.yml", 0o644, "ci.yml.tmpl"},
	}
}

// Write writes the module, and returns the names of its files below the directory, sorted. The error is a *Problem if the plugin cannot be written as it is described.
func Write(plugin Plugin) ([]string, error) {
	if plugin.Module == "" {
		plugin.Module = "example.com/" + plugin.Name
	}
	var err error
	if plugin.Checkout, err = filepath.Abs(plugin.Checkout); err != nil {
		return nil, err
	}
	if plugin.Directory, err = filepath.Abs(plugin.Directory); err != nil {
		return nil, err
	}
	if err := plugin.check(); err != nil {
		return nil, err
	}
	there, lost, err := look(plugin.Directory)
	if err != nil {
		return nil, err
	}
	if lost {
		plugin.ignored = "./" + lostFound // only root can look into it
	}
	contents, err := plugin.contents()
	if err != nil {
		return nil, err
	}
	return writeAll(plugin.Directory, there, contents)
}

// special are the characters that mean something else than themselves in a Makefile, or in a shell command between double quotes.
const special = "$#\"`\\\n\r"

func (p Plugin) check() error {
	switch {
	case !identity.ValidName(p.Name):
		return &Problem{fmt.Sprintf("%q cannot be the name of a plugin", p.Name), "It is of 1 to 32 characters a to z, 0 to 9 and -, begins with a letter and does not end with -."}
	case p.Store && !identity.ValidConsensusUser(p.Name):
		return &Problem{fmt.Sprintf("%q cannot be a ConsensusUser", p.Name), "The consensus store has a user of that name itself: choose another name."}
	case module.CheckPath(p.Module) != nil:
		return &Problem{fmt.Sprintf("%q cannot be the path of a Go module", p.Module), "It is such as example.com/" + p.Name + "."}
	case strings.ContainsAny(p.Checkout, special):
		return &Problem{fmt.Sprintf("the path %q of the checkout cannot be written into a Makefile", p.Checkout), "Move the checkout to a path without these characters: $ # \" ` \\ and line breaks."}
	}
	return nil
}

// content is the text of a file.
type content struct {
	mode os.FileMode
	data []byte
}

// contents makes all files.
func (p Plugin) contents() (map[string]content, error) {
	all, err := template.ParseFS(templates, "templates/*.tmpl")
	if err != nil {
		return nil, err
	}
	mod, sum, err := p.modules()
	if err != nil {
		return nil, err
	}
	contents := map[string]content{"go.mod": {0o644, mod}, "go.sum": {0o644, sum}}
	view := struct {
		Plugin
		Direct []own
		// Env is the variable that makes the test's binary the plugin.
		Env string
	}{p, append([]own{"proto"}, p.direct()...), strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_")) + "_TEST_PLUGIN"}
	for _, file := range p.files() {
		var text bytes.Buffer
		if err := all.ExecuteTemplate(&text, file.template, view); err != nil {
			return nil, err
		}
		contents[file.name] = content{file.mode, text.Bytes()}
	}
	return contents, nil
}

// lostFound is what a new file system has. It counts as empty.
const lostFound = "lost+found"

// look says whether a directory is there, and whether it has a lost+found. The error is a *Problem if it has anything else.
func look(directory string) (there, lost bool, err error) {
	entries, err := os.ReadDir(directory)
	lost = len(entries) == 1 && entries[0].Name() == lostFound
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, false, nil
	case err != nil:
		return false, false, err
	case len(entries) > 0 && !lost:
		return false, false, &Problem{directory + " is not empty", "Nothing in it was changed: choose another place by --directory."}
	}
	return true, lost, nil
}

// writeAll writes a directory that is there as a whole or not at all. If the directory is there already it may be a file system of its own: all files are written within it then, and appear
// one after another at the end. One who is killed meanwhile leaves a part of them.
func writeAll(directory string, there bool, contents map[string]content) (names []string, err error) {
	parent := filepath.Dir(directory)
	if there {
		parent = directory
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	temporary, err := os.MkdirTemp(parent, "."+filepath.Base(directory)+".new-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if err := os.Chmod(temporary, 0o755); err != nil {
		return nil, err
	}
	for name, content := range contents {
		path := filepath.Join(temporary, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content.data, content.mode); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if there {
		return names, moveAll(temporary, directory)
	}
	return names, os.Rename(temporary, directory)
}

// moveAll moves all that is in one directory into another one. If that fails it moves nothing.
func moveAll(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for i, entry := range entries {
		if err := os.Rename(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			for _, moved := range entries[:i] {
				err = errors.Join(err, os.RemoveAll(filepath.Join(to, moved.Name())))
			}
			return err
		}
	}
	return nil
}
