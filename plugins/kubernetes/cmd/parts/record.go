package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/google/renameio/v2"
)

// recordFile is where it is said of what the parts in a directory were built.
const recordFile = "parts.json"

// record says of what and how a part was built: built of the same in the same way, it is the same.
type record struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	Sum     string `json:"sum"`
	// Go is the version of the compiler, and GOARCH what it compiles for.
	Go       string   `json:"go"`
	GOARCH   string   `json:"goarch"`
	Flags    []string `json:"flags"`
	Packages []string `json:"packages"`
	// Libraries are those of this machine that it is linked with, and their versions.
	Libraries map[string]string `json:"libraries,omitempty"`
	// Replaced has the digests of what took the place of the module's files.
	Replaced map[string]string `json:"replaced,omitempty"`
	// Image is the digest of the image with an empty program: all of it that does not come of the module.
	Image string `json:"image,omitempty"`
	// Files has the digests of what was built.
	Files map[string]string `json:"files"`
}

// records are those of all parts, by their names.
type records map[string]record

// readRecords reads what a directory says of itself. What cannot be read is as if there were none: everything is built.
func readRecords(directory string) records {
	found := records{}
	if text, err := os.ReadFile(filepath.Join(directory, recordFile)); err == nil && json.Unmarshal(text, &found) != nil {
		return records{}
	}
	return found
}

func (r records) write(directory string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(directory, recordFile), append(text, '\n'), 0o644, renameio.WithTempDir(directory))
}

// holds returns whether a part is there that was built so, and has not changed since.
func (r records) holds(directory, name string, wanted record) (bool, error) {
	have, ok := r[name]
	if !ok {
		return false, nil
	}
	files := have.Files
	if have.Files = nil; !reflect.DeepEqual(have, wanted) {
		return false, nil
	}
	for file, want := range files {
		sum, err := fileDigest(filepath.Join(directory, file))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if sum != want {
			return false, nil
		}
	}
	return true, nil
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func fileDigest(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}
