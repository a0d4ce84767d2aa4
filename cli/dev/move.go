package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/target"
)

// movedName is a file with the places at which a dev directory was before, as long as the cluster names files there.
const movedName = "moved"

// settle makes the parameters of all nodes of a directory those of the place where it is. A copy is refused. A node that runs keeps the parameters with which it
// was started.
func (d *Directory) settle() error {
	for _, path := range Nodes(d.State) {
		if err := settleOne(path); err != nil {
			return err
		}
	}
	return nil
}

func settleOne(state string) error {
	if err := target.CheckCopy(state); err != nil {
		return err
	}
	former, _ := target.Former(state)
	switch {
	case former == "":
	case target.Held(state):
		return nil
	default:
		if err := relocate(state, former); err != nil {
			return err
		}
	}
	inode, err := target.Inode(state)
	if err != nil {
		return err
	}
	place := filepath.Join(state, target.PlaceName)
	if recorded, err := os.ReadFile(place); err == nil && strings.TrimSpace(string(recorded)) == inode {
		return nil
	}
	return replaceFile(place, []byte(inode+"\n"), 0o644)
}

// relocate writes the parameters of a directory that was moved.
func relocate(state, former string) error {
	file := filepath.Join(state, parametersName)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	directories, ok := document["directories"].(map[string]any)
	run, isText := directories["run"].(string)
	if !ok || !isText {
		return fmt.Errorf("%s names no run directory", file)
	}
	if owner, err := os.Readlink(filepath.Join(run, ownerName)); err == nil && owner == former && recordedRun(run) {
		return fault.New(fault.Refused, fmt.Sprintf("%s was moved from %s, and roles of its node still run", state, former),
			"Move it back, run `reeve dev down --dir "+former+"`, and move it then.")
	}
	// Another cluster at the former place has that run directory.
	directories["run"] = filepath.Join(filepath.Dir(run), short(state))
	encoded, err := yaml.Marshal(moved(document, former, state))
	if err != nil {
		return err
	}
	if err := rememberMove(state, former); err != nil {
		return err
	}
	return replaceFile(file, append([]byte(parametersHead), encoded...), 0o644)
}

// moved returns a document whose paths below a directory are below another one. Texts may be JSON with paths in it.
func moved(value any, from, to string) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = moved(inner, from, to)
		}
	case []any:
		for i, inner := range value {
			value[i] = moved(inner, from, to)
		}
	case string:
		return MovedPath(value, from, to)
	}
	return value
}

// MovedPath returns a path, or a JSON document with paths, for a directory that was moved. Other texts are unchanged.
func MovedPath(text, from, to string) string {
	if rest, ok := strings.CutPrefix(text, from+"/"); ok {
		return filepath.Join(to, rest)
	}
	// What is no path stays as it is: numbers of any size, and characters that are special in HTML.
	var document any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if !strings.Contains(text, from+"/") || !json.Valid([]byte(text)) || decoder.Decode(&document) != nil {
		return text
	}
	var encoded strings.Builder
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(moved(document, from, to)); err != nil {
		return text
	}
	return strings.TrimSuffix(encoded.String(), "\n")
}

func rememberMove(state, former string) error {
	places, err := formerPlaces(state)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(state, movedName), []byte(strings.Join(append(places, former), "\n")+"\n"), 0o644)
}

func formerPlaces(state string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(state, movedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(content) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(content), "\n"), "\n"), nil
}

// Moved returns the places at which the directory was while the cluster has not heard that it was moved.
func (d *Directory) Moved() ([]string, error) { return formerPlaces(d.State) }

// Told forgets the former places, since the cluster has heard.
func (d *Directory) Told() error {
	if err := os.Remove(filepath.Join(d.State, movedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replaceFile replaces a file in one step.
func replaceFile(path string, content []byte, mode fs.FileMode) error {
	draft, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = draft.Write(content)
	if err = errors.Join(err, draft.Chmod(mode), draft.Sync(), draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		_ = os.Remove(draft.Name())
	}
	return err
}
