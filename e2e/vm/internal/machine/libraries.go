package machine

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// libraryDirectories are where Debian keeps the libraries of this architecture.
var libraryDirectories = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// interpreter is the path of the dynamic linker in every program of this architecture.
const interpreter = "/lib64/ld-linux-x86-64.so.2"

// libraries returns the shared libraries that programs need, by the name under which they look for them, in all their generations; extra are some that they load
// only when they need them.
func libraries(programs []string, extra ...string) (map[string]string, error) {
	found := make(map[string]string)
	pending := slices.Clone(programs)
	for _, name := range extra {
		file, err := findLibrary(name)
		if err != nil {
			return nil, err
		}
		found[name] = file
		pending = append(pending, file)
	}
	for len(pending) > 0 {
		file := pending[0]
		pending = pending[1:]
		needed, err := needs(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, name := range needed {
			if found[name] != "" {
				continue
			}
			library, err := findLibrary(name)
			if err != nil {
				return nil, fmt.Errorf("%s needs it: %w", file, err)
			}
			found[name] = library
			pending = append(pending, library)
		}
	}
	return found, nil
}

// needs returns the libraries that a program or a library names.
func needs(file string) ([]string, error) {
	program, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = program.Close() }()
	names, err := program.ImportedLibraries()
	// A static program has no section that names any.
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, err
	}
	return names, nil
}

func findLibrary(name string) (string, error) {
	for _, directory := range libraryDirectories {
		file := filepath.Join(directory, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file, nil
		}
	}
	return "", &MissingError{What: "there is no library " + name + " on this machine"}
}
