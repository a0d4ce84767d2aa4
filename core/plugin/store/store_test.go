package store

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/inorder"
)

func openStore(t *testing.T) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "plugins")
	store, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return store, dir
}

// storedFile is where the store in a directory keeps an executable.
func storedFile(dir, digest string) string {
	return filepath.Join(dir, strings.Replace(digest, ":", "-", 1))
}

func use(store *Store, digest string) error {
	executable, err := store.Open(digest)
	if err != nil {
		return err
	}
	return executable.Close()
}

func TestStoreKeepsByDigest(t *testing.T) {
	t.Parallel()
	store, dir := openStore(t)
	const content, want = "hello", "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	for range 2 {
		digest, err := store.Import(t.Context(), strings.NewReader(content))
		if err != nil || digest != want {
			t.Fatalf("digest %s, %v", digest, err)
		}
	}
	stored, err := store.Open(want)
	if err != nil || stored.Digest() != want {
		t.Fatalf("%v, %v", stored, err)
	}
	defer func() { _ = stored.Close() }()
	if bytes, err := io.ReadAll(stored.File()); err != nil || string(bytes) != content {
		t.Errorf("content %q, %v", bytes, err)
	}
	mode := os.FileMode(0o555)
	if os.Geteuid() == 0 {
		mode = 0o511
	}
	info, err := os.Stat(storedFile(dir, want))
	if err != nil || info.Mode().Perm() != mode {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("entries %v, %v", entries, err)
	}
}

func TestStoreRefusesWhatWasChanged(t *testing.T) {
	t.Parallel()
	for name, change := range inorder.Of(map[string]func(path string) error{
		"content": func(path string) error {
			if err := os.Chmod(path, 0o755); err != nil {
				return err
			}
			return os.WriteFile(path, []byte("hellO"), 0o755)
		},
		"writable":             func(path string) error { return os.Chmod(path, 0o777) },
		"no longer executable": func(path string) error { return os.Chmod(path, 0o444) },
		"too large": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			// Its owner may not write to it, unless that is root.
			return errors.Join(os.Chmod(path, 0o755), os.Truncate(path, MaxExecutable+1), os.Chmod(path, info.Mode()))
		},
		"link": func(path string) error {
			return errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path))
		},
		"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) },
		"gone":      os.Remove,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, dir := openStore(t)
			digest, err := store.Import(t.Context(), strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			if err := use(store, digest); err != nil {
				t.Fatal(err)
			}
			if !store.Has(digest) {
				t.Error("it is not there")
			}
			if err := change(storedFile(dir, digest)); err != nil {
				t.Fatal(err)
			}
			// Has looks at what is there, and not at the bytes.
			if has := store.Has(digest); has == slices.Contains([]string{"link", "directory", "gone"}, name) {
				t.Errorf("it is there: %v", has)
			}
			var missing *MissingError
			if err := use(store, digest); !errors.As(err, &missing) || missing.Digest != digest {
				t.Errorf("error %v", err)
			}
			if name == "directory" {
				return
			}
			if _, err := store.Import(t.Context(), strings.NewReader("hello")); err != nil {
				t.Fatal(err)
			}
			if err := use(store, digest); err != nil {
				t.Errorf("imported again: %v", err)
			}
		})
	}
}

func TestStoreImportsAllOrNothing(t *testing.T) {
	t.Parallel()
	store, dir := openStore(t)
	boom := errors.New("boom")
	if _, err := store.Import(t.Context(), io.MultiReader(strings.NewReader("half"), failing{boom})); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
	if _, err := store.Import(t.Context(), strings.NewReader("")); err == nil {
		t.Error("nothing was imported")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Import(ctx, strings.NewReader("late")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("entries %v, %v", entries, err)
	}
	// What a core that was killed left is removed by the next.
	if err := os.WriteFile(filepath.Join(dir, ".import-123"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("entries %v, %v", entries, err)
	}
}

func TestStoreTakesNoPaths(t *testing.T) {
	t.Parallel()
	store, _ := openStore(t)
	for _, digest := range []string{"", "sha256:", "sha256:../../../../etc/passwd", "md5:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("0", 63) + "/"} {
		var missing *MissingError
		if err := use(store, digest); !errors.As(err, &missing) {
			t.Errorf("%q: %v", digest, err)
		}
		if store.Has(digest) {
			t.Errorf("%q is there", digest)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
