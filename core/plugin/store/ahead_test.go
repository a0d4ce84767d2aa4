package store

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

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
	var missing *MissingError
	if err := use(store, digest); !errors.As(err, &missing) || !strings.Contains(missing.Reason, "was changed") {
		t.Errorf("changed: %v", err)
	}
}
