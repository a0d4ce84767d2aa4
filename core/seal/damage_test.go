package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
)

// Whatever happens to the file, it is an error that names it and says what to do, and the file stays as it is.
func TestUnreadable(t *testing.T) {
	for name, sealer := range inorder.Of(map[string]seal.Sealer{"file": seal.File{}, "chip": &chip{}}) {
		t.Run(name, func(t *testing.T) {
			store, path := newStore(t, sealer)
			c := configuration(t)
			must(t, store.Save(t.Context(), c))
			good, err := os.ReadFile(path)
			must(t, err)
			file := reopen(t, path)
			check := func(what string, content []byte, says string) {
				t.Helper()
				rewrite(t, file, content)
				got, err := seal.NewStore(path, sealer).Load(t.Context())
				var unreadable *seal.UnreadableError
				if got != nil || !errors.As(err, &unreadable) || unreadable.Path != path || !strings.Contains(err.Error(), "reeve node unlock") || !strings.Contains(err.Error(), says) {
					t.Fatalf("%s: loaded %v, error %v", what, got, err)
				}
				if what == "a flipped bit" {
					return // there are many, and nobody writes to the file
				}
				if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
					t.Fatalf("%s: the file was changed: %v", what, err)
				}
			}
			for i := range good {
				check("cut off", good[:i], "damaged")
				for bit := range 8 {
					if name != "file" && bit != i%8 {
						continue // nearly all of it is the same for every sealer
					}
					flipped := bytes.Clone(good)
					flipped[i] ^= 1 << bit
					check("a flipped bit", flipped, "")
				}
			}
			replace := func(old, new string) []byte {
				changed := bytes.Replace(good, []byte(old), []byte(new), 1)
				if bytes.Equal(changed, good) {
					t.Fatalf("%s is not in the file", old)
				}
				return changed
			}
			check("newer", replace(`"version": 3`, `"version": 4`), "or a newer one")
			check("taken for an earlier one", replace(`"version": 3`, `"version": 2`), "damaged")
			check("of before the first release", replace(`"version": 3`, `"version": 1`), "set up the node again")
			check("not a document", []byte("[1]"), "damaged")
			check("huge", bytes.Repeat([]byte(" "), 2<<20), "small")
		})
	}
}

// Who can write the file can write its sum too, and still changes nothing that the secrets are encrypted with.
func TestForged(t *testing.T) {
	store, path := newStore(t, seal.File{})
	c := configuration(t)
	must(t, store.Save(t.Context(), c))
	genuine, err := os.ReadFile(path)
	must(t, err)
	forge := func(t *testing.T, change func(open map[string]any, content map[string]any)) error {
		t.Helper()
		// In the order of the fields that seal writes, or it would be refused for that alone.
		var d struct {
			Content struct {
				Open    json.RawMessage `json:"open"`
				Key     json.RawMessage `json:"key"`
				Secrets []byte          `json:"secrets"`
			} `json:"content"`
		}
		must(t, json.Unmarshal(genuine, &d))
		var open map[string]any
		decoder := json.NewDecoder(bytes.NewReader(d.Content.Open))
		decoder.UseNumber()
		must(t, decoder.Decode(&open))
		open["registration"] = c.Registration
		content := map[string]any{"key": d.Content.Key, "secrets": d.Content.Secrets}
		change(open, content)
		var ordered bytes.Buffer
		for i, name := range []string{"sealer", "cluster_id", "node_id", "owner_public_key", "recovery_recipient", "volume_kind", "volume_location", "phase", "cuk_sources",
			"store_formed", "registration"} {
			value, err := json.Marshal(open[name])
			must(t, err)
			ordered.WriteString(map[bool]string{true: "{", false: ","}[i == 0] + `"` + name + `":` + string(value))
		}
		d.Content.Open = append(ordered.Bytes(), '}')
		d.Content.Key, d.Content.Secrets = content["key"].(json.RawMessage), content["secrets"].([]byte)
		must(t, storage.WriteDocument(path, 3, d.Content, 0o400))
		_, err := seal.NewStore(path, seal.File{}).Load(t.Context())
		return err
	}
	if err := forge(t, func(map[string]any, map[string]any) {}); err != nil {
		t.Fatalf("the test forges by changing nothing: %v", err)
	}
	var unreadable *seal.UnreadableError
	for name, value := range map[string]any{
		"cluster_id": "c2", "node_id": "reeve-0", "owner_public_key": make([]byte, 32), "recovery_recipient": "age1mine", "volume_kind": "plain",
		"volume_location": "/dev/sda", "phase": "formatting", "cuk_sources": []string{"tpm"},
		"registration": &seal.Registration{TicketID: "0123456789abcdef", CAPins: [][]byte{{1}}, Curators: []string{"192.0.2.1:7400"}},
	} {
		if err := forge(t, func(open, _ map[string]any) { open[name] = value }); !errors.As(err, &unreadable) || !strings.Contains(err.Error(), "its own key does not open") {
			t.Errorf("another %s: %v", name, err)
		}
	}
	var other *seal.OtherSealerError
	if err := forge(t, func(open, _ map[string]any) { open["sealer"] = "tpm2" }); !errors.As(err, &other) || other.Sealed != "tpm2" || other.Wanted != "file" || !errors.As(err, &unreadable) {
		t.Errorf("another sealer: %v", err)
	}
	for _, key := range []string{`null`, `{}`, `{"key":""}`, `{"key":"AA=="}`, `{"key":"AA==","more":1}`, `{"key":"` + strings.Repeat("A", 43) + `="}`, `"AA=="`} {
		if err := forge(t, func(_, content map[string]any) { content["key"] = json.RawMessage(key) }); !errors.As(err, &unreadable) {
			t.Errorf("the key %s: %v", key, err)
		}
	}
	for _, secrets := range [][]byte{nil, {1}, make([]byte, 28), make([]byte, 200)} {
		if err := forge(t, func(_, content map[string]any) { content["secrets"] = secrets }); !errors.As(err, &unreadable) {
			t.Errorf("the secrets %x: %v", secrets, err)
		}
	}
}

func TestNoFile(t *testing.T) {
	unreadable := func(t *testing.T, path string) {
		t.Helper()
		var unreadable *seal.UnreadableError
		if _, err := seal.NewStore(path, seal.File{}).Load(t.Context()); !errors.As(err, &unreadable) {
			t.Errorf("Load: %v", err)
		}
		if _, err := seal.NewStore(path, seal.File{}).Head(); !errors.As(err, &unreadable) {
			t.Errorf("Head: %v", err)
		}
		if err := seal.NewStore(path, seal.File{}).Save(t.Context(), configuration(t)); err == nil {
			t.Error("a new node was made over it")
		}
	}
	t.Run("a directory", func(t *testing.T) { unreadable(t, t.TempDir()) })
	t.Run("a link to nowhere", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "configuration.json")
		must(t, os.Symlink("nowhere", path))
		unreadable(t, path)
	})
	t.Run("a pipe", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "configuration.json")
		must(t, unix.Mkfifo(path, 0o600))
		unreadable(t, path)
	})
	t.Run("not permitted", func(t *testing.T) {
		store, path := newStore(t, seal.File{})
		must(t, store.Save(t.Context(), configuration(t)))
		must(t, os.Chmod(path, 0))
		if os.Geteuid() == 0 {
			// Nothing is unreadable for root, but for a thread that reads as somebody else. The thread ends with the test.
			runtime.LockOSThread()
			must(t, unix.Setfsuid(65534))
			t.Cleanup(func() { must(t, unix.Setfsuid(0)) })
		}
		unreadable(t, path)
	})
}
