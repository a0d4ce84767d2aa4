package keys_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/storage"
)

var volume = keys.Volume{ClusterID: "c1", NodeID: "n1", Kind: "fscrypt"}

func halves(t testing.TB) keys.Halves {
	return keys.Halves{NUK: random(t, keys.Size), CUK: random(t, keys.Size)}
}

func newStore(t testing.TB) (*keys.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "volume-key.json")
	return keys.NewStore(path), path
}

// opens fails the test unless the halves give that key.
func opens(t *testing.T, store *keys.Store, with keys.Halves, want *keys.Secret) {
	t.Helper()
	got, err := store.Open(volume, with)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Destroy()
	if !got.Equal(want) {
		t.Fatal("another key than was wrapped")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rewrite replaces the content of an open file. It is not truncated first, which has some file systems write to the disk every time.
func rewrite(t testing.TB, file *os.File, content []byte) {
	t.Helper()
	_, err := file.WriteAt(content, 0)
	must(t, errors.Join(err, file.Truncate(int64(len(content)))))
}

// reopen opens a file that was written to be read only.
func reopen(t testing.TB, path string) *os.File {
	t.Helper()
	must(t, os.Chmod(path, 0o600))
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

func TestWrap(t *testing.T) {
	store, path := newStore(t)
	if exists, err := store.Exists(); err != nil || exists {
		t.Fatalf("before anything was wrapped: %v, %v", exists, err)
	}
	if _, err := store.Open(volume, halves(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	first, data := halves(t), random(t, 64)
	must(t, store.Add(volume, first, data))
	opens(t, store, first, data)
	if exists, err := store.Exists(); err != nil || !exists {
		t.Errorf("after: %v, %v", exists, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// Again: nothing is written.
	before, err := os.ReadFile(path)
	must(t, err)
	must(t, store.Add(volume, first, data))
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has changed: %v", err)
	}
	if err := store.Add(volume, first, random(t, 64)); err == nil || !strings.Contains(err.Error(), "another data key") {
		t.Errorf("another data key by the same halves: %v", err)
	}
	if strings.Contains(string(before), first.NUK.String()) || bytes.Contains(before, []byte("reeve")) {
		t.Errorf("unexpected in the file: %s", before)
	}
	// Neither half opens it alone, nor with another one, nor both in the place of each other.
	second := halves(t)
	for name, other := range map[string]keys.Halves{
		"other halves": second, "another CUK": {NUK: first.NUK, CUK: second.CUK}, "another NUK": {NUK: second.NUK, CUK: first.CUK}, "exchanged": {NUK: first.CUK, CUK: first.NUK},
	} {
		if got, err := store.Open(volume, other); got != nil || !errors.Is(err, keys.ErrOtherKeys) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := store.Open(volume, keys.Halves{NUK: first.NUK}); got != nil || !errors.Is(err, keys.ErrDestroyed) {
		t.Errorf("one half: %v, %v", got, err)
	}
	for _, other := range []keys.Volume{{ClusterID: "c2", NodeID: "n1", Kind: "fscrypt"}, {ClusterID: "c1", NodeID: "n2", Kind: "fscrypt"}, {ClusterID: "c1", NodeID: "n1", Kind: "luks"}, {ClusterID: "c1n", NodeID: "1", Kind: "fscrypt"}} {
		var unreadable *keys.UnreadableError
		if got, err := store.Open(other, first); got != nil || !errors.As(err, &unreadable) {
			t.Errorf("the volume %v: %v, %v", other, got, err)
		}
	}
}

func TestRotate(t *testing.T) {
	store, path := newStore(t)
	data, old := random(t, 64), halves(t)
	next := keys.Halves{NUK: random(t, keys.Size), CUK: old.CUK}
	must(t, store.Add(volume, old, data))
	if err := store.Keep(volume, next); !errors.Is(err, keys.ErrOtherKeys) {
		t.Errorf("kept what is not there: %v", err)
	}
	must(t, store.Add(volume, next, data))
	opens(t, store, old, data)
	opens(t, store, next, data)
	must(t, store.Keep(volume, next))
	must(t, store.Keep(volume, next))
	opens(t, store, next, data)
	if _, err := store.Open(volume, old); !errors.Is(err, keys.ErrOtherKeys) {
		t.Errorf("by the old keys: %v", err)
	}
	// After a recovery, whatever was there is of no matter.
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, []byte("damaged"), 0o400))
	var unreadable *keys.UnreadableError
	if err := store.Add(volume, next, data); !errors.As(err, &unreadable) {
		t.Errorf("added to a damaged file: %v", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "damaged" {
		t.Errorf("the damaged file has become %q, %v", content, err)
	}
	must(t, store.Replace(volume, old, data))
	opens(t, store, old, data)
}

// Whatever happens to the file, it gives the key that was wrapped or an error that names it.
func TestDamagedWrapping(t *testing.T) {
	store, path := newStore(t)
	with, other, data := halves(t), halves(t), random(t, 64)
	must(t, store.Add(volume, with, data))
	good, err := os.ReadFile(path)
	must(t, err)
	file := reopen(t, path)
	check := func(what string, content []byte) {
		t.Helper()
		rewrite(t, file, content)
		var unreadable *keys.UnreadableError
		uses := []func() error{
			func() error { _, err := store.Open(volume, with); return err },
			func() error { return store.Keep(volume, with) },
			func() error { return store.Add(volume, other, data) },
		}
		if what == "a flipped bit" {
			uses = uses[:1] // there are many
		}
		for _, use := range uses {
			if err := use(); !errors.As(err, &unreadable) || unreadable.Path != path || !strings.Contains(err.Error(), "reeve node unlock") {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
			t.Fatalf("%s: the file was changed: %v", what, err)
		}
	}
	for i := range good {
		check("cut off", good[:i])
		for bit := range 8 {
			flipped := bytes.Clone(good)
			flipped[i] ^= 1 << bit
			check("a flipped bit", flipped)
		}
	}
	check("longer", append(bytes.Clone(good), '\n'))
	check("twice", append(bytes.Clone(good), good...))
	check("huge", bytes.Repeat([]byte(" "), 2<<20))
	check("null", []byte("null"))

	// Who can write the file can write the sum too, and still gets nothing opened but what was wrapped.
	var f struct {
		Content struct {
			Wrapped []struct {
				NUK string `json:"nuk"`
				CUK string `json:"cuk"`
				Key []byte `json:"key"`
			} `json:"wrapped"`
		} `json:"content"`
	}
	must(t, json.Unmarshal(good, &f))
	genuine := bytes.Clone(f.Content.Wrapped[0].Key)
	for i := range genuine {
		f.Content.Wrapped[0].Key = bytes.Clone(genuine)
		f.Content.Wrapped[0].Key[i] ^= 1
		must(t, storage.WriteDocument(path, 1, f.Content, 0o600))
		var unreadable *keys.UnreadableError
		if got, err := store.Open(volume, with); got != nil || !errors.As(err, &unreadable) {
			t.Fatalf("byte %d changed by somebody who knows the format: %v, %v", i, got, err)
		}
	}
	f.Content.Wrapped[0].Key = nil
	must(t, storage.WriteDocument(path, 1, f.Content, 0o600))
	if got, err := store.Open(volume, with); got != nil || err == nil {
		t.Errorf("without a key: %v, %v", got, err)
	}

	must(t, storage.WriteDocument(path, 2, f.Content, 0o600))
	var newer *storage.VersionError
	if _, err := store.Open(volume, with); !errors.As(err, &newer) || newer.Found != 2 || newer.Known != 1 || !strings.Contains(err.Error(), "a newer one") {
		t.Errorf("a newer version: %v", err)
	}
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	var unreadable *keys.UnreadableError
	if _, err := store.Open(volume, with); !errors.As(err, &unreadable) {
		t.Errorf("a directory: %v", err)
	}
	if exists, err := store.Exists(); err != nil || !exists {
		t.Errorf("a directory: %v, %v", exists, err)
	}
}

// Whatever the file holds, it gives the key that was wrapped or an error.
func FuzzWrapped(f *testing.F) {
	store, path := newStore(f)
	// Those with which the file in testdata was written: each new one is encrypted anew.
	with := keys.Halves{NUK: secretOf(f, strings.Repeat("n", keys.Size)), CUK: secretOf(f, strings.Repeat("c", keys.Size))}
	data := secretOf(f, "the key of the volume")
	good, err := os.ReadFile("testdata/volume-key.json")
	must(f, err)
	must(f, os.WriteFile(path, good, 0o600))
	file := reopen(f, path)
	f.Add(good)
	f.Add([]byte(`{"version":1,"sum":"","content":{"wrapped":[]}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1e9}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		rewrite(t, file, content)
		got, err := store.Open(volume, with)
		if err == nil {
			if !got.Equal(data) {
				t.Fatal("another key than was wrapped")
			}
			got.Destroy()
			return
		}
		if bytes.Equal(content, good) {
			t.Fatalf("what was written does not open: %v", err)
		}
		var unreadable *keys.UnreadableError
		if got != nil || !errors.As(err, &unreadable) && !errors.Is(err, keys.ErrOtherKeys) {
			t.Fatalf("%v, %v", got, err)
		}
	})
}
