package machine

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestArchive has another program read what the kernel is given.
func TestArchive(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cannot run: there is no program cpio (Debian's package cpio), which reads the archive as the kernel does")
	}
	var out bytes.Buffer
	a := newArchive(&out)
	a.directory("d")
	a.file("d/odd", 0o644, []byte("12345"))
	a.file("d/empty", 0o600, nil)
	a.file("last", 0o755, []byte("12345678"))
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	command := exec.Command(cpio, "--extract", "--quiet")
	command.Dir, command.Stdin = directory, &out
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for name, want := range map[string]string{"d/odd": "12345", "d/empty": "", "last": "12345678"} {
		if content, err := os.ReadFile(filepath.Join(directory, name)); err != nil || string(content) != want {
			t.Errorf("%s: %q, %v, want %q", name, content, err, want)
		}
	}
	a = newArchive(&out)
	a.copy("missing", 0o644, filepath.Join(directory, "missing"))
	if err := a.close(); err == nil {
		t.Error("an archive without a file that it should have is no error")
	}
}

// TestLibraries compares with what the dynamic linker finds.
func TestLibraries(t *testing.T) {
	program, err := find("mkfs.ext4", "e2fsprogs")
	if err != nil {
		t.Skipf("cannot run: %v", err)
	}
	found, err := libraries([]string{program})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Skipf("cannot run: ldd does not list the libraries of %s: %v", program, err)
	}
	for line := range strings.Lines(string(listed)) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if ok && found[name] == "" {
			t.Errorf("%s needs %s, which was not found: %v", program, name, found)
		}
	}
}

// TestModules reads the modules of a kernel that another test got.
func TestModules(t *testing.T) {
	k, err := keptKernel(filepath.Join("..", "..", "..", "..", "var", "vm"))
	if err != nil {
		t.Skipf("cannot run: %v; the tests of e2e/vm get one", err)
	}
	files, err := orderedModules(k.modules, []string{"dm_crypt", "virtio_blk", "no_such_module"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, moduleName(strings.TrimSuffix(filepath.Base(file), ".ko")))
	}
	for _, pair := range [][2]string{{"dm_mod", "dm_crypt"}, {"virtio", "virtio_blk"}, {"virtio_ring", "virtio_blk"}} {
		first, second := slices.Index(names, pair[0]), slices.Index(names, pair[1])
		if first < 0 || second < 0 || first > second {
			t.Errorf("%s is not before %s: %v", pair[0], pair[1], names)
		}
	}
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
		t.Errorf("a module is there twice: %v", names)
	}
	if _, err := orderedModules(t.TempDir(), wantedModules); err == nil {
		t.Error("a directory without modules is no error")
	}
}
