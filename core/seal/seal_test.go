package seal_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
)

func configuration(t testing.TB) *seal.Configuration {
	t.Helper()
	owner, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &seal.Configuration{ClusterID: "c1", NodeKey: key, Owner: owner, VolumeKind: storage.Plain, Phase: seal.Forming}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	store := seal.NewStore(path, seal.File{})
	if got, err := store.Load(); err != nil || got != nil {
		t.Fatalf("before the first Save: %v, %v", got, err)
	}
	want := configuration(t)
	for _, phase := range []seal.Phase{seal.Forming, seal.Formed, seal.Member} {
		want.Phase = phase
		if err := store.Save(want); err != nil {
			t.Fatal(err)
		}
		got, err := store.Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "configuration.json")
	store := seal.NewStore(path, seal.File{})
	if err := store.Save(configuration(t)); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) []byte { return bytes.Replace(good, []byte(old), []byte(new), 1) }
	tests := map[string][]byte{
		"empty":          {},
		"truncated":      good[:len(good)/2],
		"newer":          replace(`"version": 1`, `"version": 2`),
		"other sealer":   replace(`"file"`, `"tpm2"`),
		"unknown phase":  replace(`"forming"`, `"dreaming"`),
		"unknown field":  replace(`"phase"`, `"faze"`),
		"no cluster":     replace(`"c1"`, `""`),
		"short key":      replace(`"sealed": "`, `"sealed": "AAAA`),
		"not a document": []byte("[1]"),
		"huge":           bytes.Repeat([]byte(" "), 2<<20),
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			if bytes.Equal(content, good) {
				t.Fatal("the test damages nothing")
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o400); err != nil {
				t.Fatal(err)
			}
			got, err := store.Load()
			var unreadable *seal.UnreadableError
			if got != nil || !errors.As(err, &unreadable) || unreadable.Path != path {
				t.Errorf("loaded %v, error %v", got, err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		_, err := seal.NewStore(t.TempDir(), seal.File{}).Load()
		var unreadable *seal.UnreadableError
		if !errors.As(err, &unreadable) {
			t.Errorf("%v", err)
		}
	})
}

func FuzzLoad(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.json")
	if err := seal.NewStore(path, seal.File{}).Save(configuration(f)); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(strings.ToUpper(string(good))))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "configuration.json")
		if err := os.WriteFile(path, content, 0o400); err != nil {
			t.Fatal(err)
		}
		got, err := seal.NewStore(path, seal.File{}).Load()
		if (got == nil) == (err == nil) {
			t.Fatalf("a file that is there gave %v, %v", got, err)
		}
	})
}
