package plugin_test

import (
	gocontext "context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/plugin"
)

func TestTakeOver(t *testing.T) {
	t.Parallel()
	earlier, from := openStore(t)
	var digests []string
	for _, content := range []string{"one", "two", "three"} {
		digest, err := earlier.Import(t.Context(), strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
	}
	damaged, left := storedFile(from, digests[2]), filepath.Join(from, ".import-123")
	for _, err := range []error{earlier.Close(), os.Chmod(damaged, 0o755), os.WriteFile(damaged, []byte("four"), 0o755), os.WriteFile(left, []byte("hal"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	store, _ := openStore(t)
	defer func() { _ = store.Close() }()

	stopped, cancel := gocontext.WithCancel(t.Context())
	cancel()
	if err := store.TakeOver(stopped, from); !errors.Is(err, gocontext.Canceled) {
		t.Fatalf("stopped: %v", err)
	}
	for _, digest := range digests {
		if _, err := os.Stat(storedFile(from, digest)); err != nil || store.Has(digest) {
			t.Fatalf("%s, stopped: %v, taken %t", digest, err, store.Has(digest))
		}
	}
	if err := store.TakeOver(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	for _, digest := range digests[:2] {
		if err := use(store, digest); err != nil {
			t.Error(err)
		}
	}
	var missing *plugin.MissingError
	if err := use(store, digests[2]); !errors.As(err, &missing) {
		t.Errorf("what was changed: %v", err)
	}
	if _, err := os.Stat(from); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the former directory: %v", err)
	}
	if err := store.TakeOver(t.Context(), from); err != nil {
		t.Errorf("again: %v", err)
	}
}

// What is verified ahead is not read again, and what is wrong is still said by Open.
func TestAhead(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("cannot run: only root's store verifies ahead")
	}
	store, dir := openStore(t)
	defer func() { _ = store.Close() }()
	digest, err := store.Import(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(entries, func(e os.DirEntry) bool {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			return to != storedFile(dir, digest)
		}))
	}
	if err := store.Close(); err != nil || open() != 0 {
		t.Fatalf("%v, %d open", err, open())
	}
	store.Ahead(digest)
	if got := open(); got != 1 {
		t.Errorf("%d descriptors are open: the store keeps the one by which it was verified", got)
	}
	if err := use(store, digest); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(storedFile(dir, digest), []byte("hellO"), 0o511); err != nil {
		t.Fatal(err)
	}
	store.Ahead(digest)
	var missing *plugin.MissingError
	if err := use(store, digest); !errors.As(err, &missing) || !strings.Contains(missing.Reason, "was changed") {
		t.Errorf("changed: %v", err)
	}
}
