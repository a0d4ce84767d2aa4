package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A write that is under way has changed the times of the file already, and its content not yet: nothing is verified before it is over.
func TestExecutableThatIsWrittenIsWaitedFor(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("as an ordinary user a copy is verified that nobody can write to")
	}
	store, dir := openStore(t)
	digest, err := store.Import(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(storedFile(dir, digest), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		executable, err := store.Open(digest)
		opened <- errors.Join(err, executable.Close())
	}()
	select {
	case err := <-opened:
		t.Errorf("it is verified while somebody writes: %v", err)
		opened <- err
	case <-time.After(50 * time.Millisecond): // long enough to read five bytes
	}
	if _, err := writer.WriteString("HELLO"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	var missing *MissingError
	if err := <-opened; !errors.As(err, &missing) {
		t.Errorf("what was written is accepted: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// What was handed out stays what it was, whatever becomes of the file, of the store and of other references.
func TestExecutableStaysWhatItWas(t *testing.T) {
	t.Parallel()
	store, dir := openStore(t)
	digest, err := store.Import(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	one, err := store.Open(digest)
	if err != nil {
		t.Fatal(err)
	}
	other, err := store.Open(digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Close(), other.Close(), os.Remove(storedFile(dir, digest)), store.Close()); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 9)
	if n, err := one.File().ReadAt(content, 0); string(content[:n]) != "hello" {
		t.Errorf("content %q, %v", content[:n], err)
	}
	if _, err := one.File().Write([]byte("HELLO")); err == nil {
		t.Error("it was written")
	}
	if os.Geteuid() != 0 {
		// It is sealed, for its owner too.
		if file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", one.File().Fd()), os.O_RDWR, 0); err == nil {
			t.Error("it was opened for writing")
			_ = file.Close()
		}
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
}

// Many open and close at once, and each has the bytes while it has them.
func TestStoreIsUsedByMany(t *testing.T) {
	t.Parallel()
	store, _ := openStore(t)
	content := bytes.Repeat([]byte("x"), 1<<20)
	digest, err := store.Import(t.Context(), bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 50 {
				executable, err := store.Open(digest)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := executable.File().ReadAt(make([]byte, 9), 1<<19); err != nil {
					t.Error(err)
				}
				if err := executable.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Go(func() {
		for range 50 {
			if removed, err := store.Collect(func(string) bool { return false }); err != nil || len(removed) > 0 {
				t.Errorf("collected %v, %v", removed, err)
			}
		}
	})
	users.Wait()
}

// It runs alone: a process that another test forks meanwhile may have what is imported open for writing until it executes its program, and the store's
// patience with that is over at once by the clock of this test.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dir := openStore(t)
		imported := func(content string) string {
			digest, err := store.Import(context.Background(), strings.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			return digest
		}
		kept, used, again, old := imported("kept"), imported("used"), imported("again"), imported("old")
		running, err := store.Open(used)
		if err != nil {
			t.Fatal(err)
		}
		collect := func(want ...string) {
			t.Helper()
			removed, err := store.Collect(func(digest string) bool { return digest == kept })
			if err != nil || fmt.Sprint(removed) != fmt.Sprint(want) {
				t.Errorf("removed %v, want %v: %v", removed, want, err)
			}
		}
		collect()
		time.Sleep(50 * time.Minute)
		collect()
		imported("again") // which is stored, and may be what somebody is about to add to the catalog
		fresh := imported("fresh")
		time.Sleep(11 * time.Minute)
		collect(old)
		if err := running.Close(); err != nil {
			t.Fatal(err)
		}
		collect()
		for _, digest := range []string{kept, used, again, fresh} {
			if err := use(store, digest); err != nil {
				t.Error(err)
			}
		}
		collect()
		time.Sleep(2 * time.Hour)
		// Nothing was asked for in the meantime but what is kept.
		if removed, err := store.Collect(func(digest string) bool { return digest == kept }); err != nil || len(removed) != 3 {
			t.Errorf("removed %v, %v", removed, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("entries %v, %v", entries, err)
		}
	})
}

// What an earlier core stored for everybody to read is no longer to be read.
func TestOldStoreIsMigrated(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("as an ordinary user the mode stays")
	}
	store, dir := openStore(t)
	digest, err := store.Import(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	path := storedFile(dir, digest)
	if err := errors.Join(os.Chmod(path, 0o555), os.Chown(path, 0, 4711)); err != nil {
		t.Fatal(err)
	}
	next, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := use(next, digest); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o511 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
