package scaffold

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// project is how the paths of Reeve's modules begin.
const project = "github.com/reeveproject/reeve/"

// own is a module of Reeve: its directory in a checkout.
type own string

// Path is that of the module.
func (o own) Path() string { return project + string(o) }

// Directory is where it is in a checkout.
func (o own) Directory() string { return string(o) }

// direct are the modules of Reeve that the new one imports. They import proto.
func (p Plugin) direct() []own {
	if p.Store {
		return []own{"sdk", "sdk/conformance", "sdk/consensus"}
	}
	return []own{"sdk", "sdk/conformance"}
}

// modules makes go.mod and go.sum of what the checkout's own modules require: their versions are those that Reeve was tested with.
func (p Plugin) modules() (mod, sum []byte, err error) {
	required := make(map[string]string)
	lines := make(map[string]bool)
	language := ""
	for _, name := range p.direct() {
		path := filepath.Join(p.Checkout, name.Directory(), "go.mod")
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil, notACheckout(p.Checkout, path+" is not there")
		}
		if err != nil {
			return nil, nil, err
		}
		parsed, err := modfile.Parse(path, text, nil)
		if err != nil {
			return nil, nil, err
		}
		if parsed.Module == nil || parsed.Module.Mod.Path != name.Path() {
			return nil, nil, notACheckout(p.Checkout, path+" is of another module")
		}
		if parsed.Go != nil && semver.Compare("v"+parsed.Go.Version, "v"+language) > 0 {
			language = parsed.Go.Version
		}
		for _, require := range parsed.Require {
			if semver.Compare(require.Mod.Version, required[require.Mod.Path]) > 0 {
				required[require.Mod.Path] = require.Mod.Version
			}
		}
		sums, err := os.ReadFile(filepath.Join(p.Checkout, name.Directory(), "go.sum"))
		if err != nil {
			return nil, nil, err
		}
		for line := range strings.Lines(string(sums)) {
			lines[strings.TrimSpace(line)] = true
		}
	}
	made := new(modfile.File)
	if err := made.AddModuleStmt(p.Module); err != nil {
		return nil, nil, err
	}
	if err := made.AddGoStmt(language); err != nil {
		return nil, nil, err
	}
	var requires []*modfile.Require
	add := func(path, version string, indirect bool) {
		require := &modfile.Require{Indirect: indirect}
		require.Mod.Path, require.Mod.Version = path, version
		requires = append(requires, require)
	}
	for _, name := range p.direct() {
		add(name.Path(), "v0.0.0", false)
		delete(required, name.Path())
	}
	for path, version := range required {
		add(path, version, true)
	}
	slices.SortFunc(requires, func(a, b *modfile.Require) int { return strings.Compare(a.Mod.Path, b.Mod.Path) })
	made.SetRequireSeparateIndirect(requires)
	for _, name := range append([]own{"proto"}, p.direct()...) {
		if err := made.AddReplace(name.Path(), "", filepath.Join(p.Checkout, name.Directory()), ""); err != nil {
			return nil, nil, err
		}
	}
	if p.ignored != "" {
		if err := made.AddIgnore(p.ignored); err != nil {
			return nil, nil, err
		}
	}
	made.Cleanup()
	if mod, err = made.Format(); err != nil {
		return nil, nil, err
	}
	delete(lines, "")
	sorted := make([]string, 0, len(lines))
	for line := range lines {
		sorted = append(sorted, line)
	}
	slices.Sort(sorted)
	return mod, []byte(strings.Join(sorted, "\n") + "\n"), nil
}

func notACheckout(path, why string) error {
	return &Problem{fmt.Sprintf("%s is no checkout of Reeve: %s", path, why), "Name one by --reeve: until the SDK is published, a plugin is built against a checkout."}
}

// Checkout looks for a checkout of Reeve at some places and above them, and returns the first one; "": there is none.
func Checkout(places ...string) string {
	for _, place := range places {
		for place = filepath.Clean(place); filepath.IsAbs(place); place = filepath.Dir(place) {
			text, err := os.ReadFile(filepath.Join(place, "sdk", "go.mod"))
			if err == nil && modfile.ModulePath(text) == own("sdk").Path() {
				return place
			}
			if place == filepath.Dir(place) {
				break
			}
		}
	}
	return ""
}
