package seal_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
)

// chip is a sealer that keeps what it seals to itself, as a TPM does, and can fail.
type chip struct {
	mu      sync.Mutex
	kept    []*keys.Secret
	failing error
	// calls counts what was asked of it.
	calls int
}

func (c *chip) Name() string { return "chip" }

func (c *chip) Seal(_ context.Context, secret *keys.Secret) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.failing != nil {
		return nil, c.failing
	}
	kept, err := secret.Clone()
	if err != nil {
		return nil, err
	}
	c.kept = append(c.kept, kept)
	return json.Marshal(map[string]int{"place": len(c.kept) - 1})
}

func (c *chip) Unseal(_ context.Context, sealed json.RawMessage) (*keys.Secret, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.failing != nil {
		return nil, c.failing
	}
	var at map[string]int
	if err := json.Unmarshal(sealed, &at); err != nil || at["place"] < 0 || at["place"] >= len(c.kept) {
		return nil, errors.New("no such place")
	}
	return c.kept[at["place"]].Clone()
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

func random(t testing.TB, size int) *keys.Secret {
	t.Helper()
	s, err := keys.NewSecret(size)
	must(t, err)
	t.Cleanup(s.Destroy)
	return s
}

// configuration is one with everything in it.
func configuration(t testing.TB) *seal.Configuration {
	t.Helper()
	owner, node, err := ed25519.GenerateKey(nil)
	must(t, err)
	_, join, err := ed25519.GenerateKey(nil)
	must(t, err)
	return &seal.Configuration{
		ClusterID: "c1", NodeKey: node, JoinKey: join, Owner: owner, RecoveryRecipient: "age1abc", VolumeKind: "fscrypt", Location: "/srv/<a> & b", Phase: seal.Made,
		CUKSources: []string{"recovery", "tpm"}, NUK: random(t, keys.Size), NextNUK: random(t, keys.Size), CUK: random(t, keys.Size), Data: random(t, 64),
		StoreFormed: true, Ticket: random(t, keys.Size),
		Registration: &seal.Registration{TicketID: "0123456789abcdef", CAPins: [][]byte{make([]byte, 32)}, Curators: []string{"192.0.2.1:7400"}},
	}
}

func newStore(t testing.TB, sealer seal.Sealer) (*seal.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "configuration.json")
	return seal.NewStore(path, sealer), path
}

// loads fails the test unless that configuration is loaded.
func loads(t *testing.T, store *seal.Store, want *seal.Configuration) {
	t.Helper()
	got, err := store.Load(t.Context())
	must(t, err)
	defer got.Destroy()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSaveAndLoad(t *testing.T) {
	for name, sealer := range inorder.Of(map[string]seal.Sealer{"file": seal.File{}, "chip": &chip{}}) {
		t.Run(name, func(t *testing.T) {
			store, path := newStore(t, sealer)
			if got, err := store.Load(t.Context()); err != nil || got != nil {
				t.Fatalf("before the first Save: %v, %v", got, err)
			}
			if head, err := store.Head(); err != nil || head != nil {
				t.Fatalf("before the first Save: %v, %v", head, err)
			}
			want := configuration(t)
			for _, phase := range []seal.Phase{seal.Made, seal.Formatting, seal.Forming, seal.Formed, seal.Member} {
				want.Phase = phase
				if phase == seal.Forming {
					want.CUK, want.Data, want.NextNUK, want.CUKSources = nil, nil, nil, nil
				}
				must(t, store.Save(t.Context(), want))
				loads(t, seal.NewStore(path, sealer), want)
			}
			loads(t, store, want)
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			head, err := store.Head()
			must(t, err)
			if diff := cmp.Diff(&seal.Head{
				Sealer: name, ClusterID: "c1", NodeID: want.NodeID(), Owner: want.Owner, RecoveryRecipient: "age1abc", VolumeKind: "fscrypt", Location: "/srv/<a> & b",
				Phase: seal.Member, StoreFormed: true, Registration: want.Registration,
			}, head); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The sealer is asked once in a start; what is secret is nowhere in the file, not even twice the same.
func TestSealerIsAskedOnce(t *testing.T) {
	sealer := &chip{}
	store, path := newStore(t, sealer)
	c := configuration(t)
	must(t, store.Save(t.Context(), c))
	first, err := os.ReadFile(path)
	must(t, err)
	sealer.failing = errors.New("gone")
	for range 3 {
		must(t, store.Save(t.Context(), c))
	}
	second, err := os.ReadFile(path)
	must(t, err)
	if bytes.Equal(first, second) {
		t.Error("the same configuration is encrypted to the same bytes")
	}
	if sealer.calls != 1 {
		t.Errorf("the sealer was asked %d times", sealer.calls)
	}
	if _, err := store.Head(); err != nil || sealer.calls != 1 {
		t.Errorf("the head needs the sealer: %v", err)
	}
	var unreadable *seal.UnreadableError
	if _, err := store.Load(t.Context()); !errors.As(err, &unreadable) || !errors.Is(err, sealer.failing) || !strings.Contains(err.Error(), "reeve node unlock") {
		t.Errorf("without its sealer: %v", err)
	}
	// What could not be loaded again is still what the store has.
	must(t, store.Save(t.Context(), c))
	sealer.failing = nil
	loads(t, store, c)
	store.Forget()
	if err := store.Save(t.Context(), c); err == nil {
		t.Error("saved without a key")
	}
	loads(t, store, c)
}

// A configuration that was not loaded is never replaced by Save, and nothing goes back.
func TestSaveIsCareful(t *testing.T) {
	store, path := newStore(t, seal.File{})
	c := configuration(t)
	c.Phase = seal.Formed
	must(t, store.Save(t.Context(), c))
	before, err := os.ReadFile(path)
	must(t, err)
	unchanged := func(what string) {
		t.Helper()
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
			t.Fatalf("%s has changed the file: %v", what, err)
		}
	}
	if err := seal.NewStore(path, seal.File{}).Save(t.Context(), configuration(t)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("another configuration over one that was not loaded: %v", err)
	}
	unchanged("a Save before a Load")
	back := *c
	back.Phase = seal.Forming
	if err := store.Save(t.Context(), &back); err == nil || !strings.Contains(err.Error(), "cannot go back") {
		t.Errorf("back to an earlier phase: %v", err)
	}
	unchanged("a Save of an earlier phase")
	for name, change := range map[string]func(*seal.Configuration){
		"no cluster": func(c *seal.Configuration) { c.ClusterID = "" }, "no node key": func(c *seal.Configuration) { c.NodeKey = nil },
		"no join key": func(c *seal.Configuration) { c.JoinKey = c.JoinKey[:8] }, "no owner": func(c *seal.Configuration) { c.Owner, c.Registration = nil, nil },
		"half an owner": func(c *seal.Configuration) { c.Owner = c.Owner[:8] },
		"no kind":       func(c *seal.Configuration) { c.VolumeKind = "" }, "no phase": func(c *seal.Configuration) { c.Phase = "dreaming" },
		"no NUK": func(c *seal.Configuration) { c.NUK = nil },
		"a destroyed NUK": func(c *seal.Configuration) {
			c.NUK = random(t, keys.Size)
			c.NUK.Destroy()
		},
	} {
		bad := *c
		change(&bad)
		if err := store.Save(t.Context(), &bad); err == nil {
			t.Errorf("saved with %s", name)
		}
		unchanged(name)
	}
	plain := *c
	plain.VolumeKind, plain.NUK = storage.Plain, nil
	must(t, store.Save(t.Context(), &plain))
	loads(t, store, &plain)
}

func TestReseal(t *testing.T) {
	sealer := &chip{}
	store, path := newStore(t, sealer)
	c := configuration(t)
	if err := store.Reseal(t.Context(), sealer.Seal); err == nil {
		t.Error("sealed anew what there is not")
	}
	must(t, store.Save(t.Context(), c))
	must(t, store.Reseal(t.Context(), sealer.Seal))
	if len(sealer.kept) != 2 || !sealer.kept[0].Equal(sealer.kept[1]) {
		t.Fatalf("sealed: %v", sealer.kept)
	}
	// The former form is worth nothing any more, also after the next Save.
	sealer.kept[0] = random(t, keys.Size)
	loads(t, seal.NewStore(path, sealer), c)
	must(t, store.Save(t.Context(), c))
	loads(t, seal.NewStore(path, sealer), c)
	before, err := os.ReadFile(path)
	must(t, err)
	sealer.failing = errors.New("gone")
	if err := store.Reseal(t.Context(), sealer.Seal); !errors.Is(err, sealer.failing) {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file has changed: %v", err)
	}
}

func TestReplace(t *testing.T) {
	sealer := &chip{}
	store, path := newStore(t, sealer)
	kept := path + ".unreadable"
	old, c := configuration(t), configuration(t)
	must(t, store.Save(t.Context(), old))
	unreadable, err := os.ReadFile(path)
	must(t, err)
	c.Phase = seal.Member
	// Another TPM, which has never seen the key.
	other := &chip{}
	store = seal.NewStore(path, other)
	if err := store.Replace(t.Context(), configuration(t)); err == nil {
		t.Error("replaced by one that may be formatted")
	}
	other.failing = errors.New("gone")
	if err := store.Replace(t.Context(), c); !errors.Is(err, other.failing) {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, unreadable) {
		t.Errorf("a Replace that failed has changed the file: %v", err)
	}
	other.failing = nil
	must(t, os.WriteFile(kept, []byte("of an earlier recovery"), 0o400))
	// Again, as a node does that was stopped: what was there first is what is kept.
	for range 2 {
		must(t, store.Replace(t.Context(), c))
		loads(t, seal.NewStore(path, other), c)
		if content, err := os.ReadFile(kept); err != nil || !bytes.Equal(content, unreadable) {
			t.Fatalf("kept: %q, %v", content, err)
		}
	}
	must(t, store.Save(t.Context(), c))
	back := *c
	back.Phase = seal.Formed
	if err := store.Save(t.Context(), &back); err == nil {
		t.Error("a recovered node goes back")
	}
	// Where there is nothing, there is nothing to keep.
	must(t, errors.Join(os.Remove(path), os.Remove(kept)))
	must(t, seal.NewStore(path, other).Replace(t.Context(), c))
	loads(t, seal.NewStore(path, other), c)
	if _, err := os.Stat(kept); !os.IsNotExist(err) {
		t.Errorf("kept nothing: %v", err)
	}
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	if err := store.Replace(t.Context(), c); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("over a directory: %v", err)
	}
}

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

// What the version before has written, which knew only nodes that had made their cluster, is read, and written anew in the present version.
func TestEarlierVersion(t *testing.T) {
	old, err := os.ReadFile("testdata/version2.json")
	must(t, err)
	store, path := newStore(t, seal.File{})
	must(t, os.WriteFile(path, old, 0o400))
	head, err := store.Head()
	must(t, err)
	if !head.StoreFormed || head.Phase != seal.Member {
		t.Errorf("head %+v", head)
	}
	c, err := store.Load(t.Context())
	must(t, err)
	defer c.Destroy()
	if !c.StoreFormed || c.Registration != nil || c.NodeID() != head.NodeID || c.NUK == nil {
		t.Errorf("loaded %+v", c)
	}
	// To be sealed anew does not change the version, what is saved does.
	same := func(_ context.Context, key *keys.Secret) (json.RawMessage, error) {
		return seal.File{}.Seal(t.Context(), key)
	}
	must(t, store.Reseal(t.Context(), same))
	if again, err := seal.NewStore(path, seal.File{}).Load(t.Context()); err != nil || !again.StoreFormed {
		t.Fatalf("sealed anew: %v", err)
	}
	c.Location = "/e"
	must(t, store.Save(t.Context(), c))
	content, err := os.ReadFile(path)
	must(t, err)
	again, err := seal.NewStore(path, seal.File{}).Load(t.Context())
	must(t, err)
	defer again.Destroy()
	if !bytes.Contains(content, []byte(`"version": 3`)) || again.Location != "/e" || !again.StoreFormed {
		t.Errorf("saved %+v:\n%s", again, content)
	}
}

// A node that registers has no owner key before it is a member, and goes the way of its own.
func TestRegistering(t *testing.T) {
	store, _ := newStore(t, seal.File{})
	c := configuration(t)
	c.Owner = nil
	for _, phase := range []seal.Phase{seal.Made, seal.Formatting, seal.Registering, seal.Registered, seal.Committing} {
		c.Phase = phase
		must(t, store.Save(t.Context(), c))
	}
	c.Phase = seal.Member
	if err := store.Save(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no owner key") {
		t.Errorf("a member without an owner key: %v", err)
	}
	c.Owner = make([]byte, ed25519.PublicKeySize)
	must(t, store.Save(t.Context(), c))
	c.Registration = &seal.Registration{}
	if err := store.Save(t.Context(), c); err == nil || !strings.Contains(err.Error(), "CA") {
		t.Errorf("without pins: %v", err)
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

// Whatever is in the file, it is loaded whole or not at all.
func FuzzLoad(f *testing.F) {
	path := filepath.Join(f.TempDir(), "configuration.json")
	// That with which the file in testdata was written: each new one is encrypted anew.
	c := configuration(f)
	c.NodeKey, c.JoinKey = ed25519.NewKeyFromSeed(make([]byte, 32)), ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	c.Owner = make([]byte, 32)
	for i, secret := range []**keys.Secret{&c.NUK, &c.NextNUK, &c.CUK, &c.Data, &c.Ticket} {
		var err error
		*secret, err = keys.SecretOf(bytes.Repeat([]byte{byte(i)}, keys.Size))
		must(f, err)
	}
	good, err := os.ReadFile("testdata/version3.json")
	must(f, err)
	must(f, os.WriteFile(path, good, 0o600))
	file := reopen(f, path)
	f.Add(good)
	f.Add([]byte(strings.ToUpper(string(good))))
	f.Add([]byte(`{"version":1,"sealer":"file","cluster_id":"c1","phase":"forming","sealed":"AAAA"}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":3}`))
	f.Add([]byte(`{"version":2,"content":{"open":{"sealer":"file"},"key":{"key":"AA=="},"secrets":"AA=="}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		rewrite(t, file, content)
		got, err := seal.NewStore(path, seal.File{}).Load(t.Context())
		if bytes.Equal(content, good) {
			must(t, err)
		}
		if (got == nil) == (err == nil) {
			t.Fatalf("a file that is there gave %v, %v", got, err)
		}
		if got != nil {
			if diff := cmp.Diff(c, got); diff != "" {
				t.Fatal(diff)
			}
			got.Destroy()
		}
	})
}

// Whatever the file says of the key that was sealed by a file, it is a key or an error.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{`{"key":"AAAA"}`, `{ "key" : "AA==" }`, `{"key":""}`, `null`, `{"key":"A A="}`, "{\"key\":\"AA=\n=\"}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sealed []byte) {
		secret, err := seal.File{}.Unseal(t.Context(), sealed)
		if (secret == nil) == (err == nil) {
			t.Fatalf("%v, %v", secret, err)
		}
		if err != nil {
			return
		}
		defer secret.Destroy()
		again, err := seal.File{}.Seal(t.Context(), secret)
		must(t, err)
		var compact bytes.Buffer
		must(t, json.Compact(&compact, sealed))
		if !bytes.Equal(again, compact.Bytes()) {
			t.Errorf("%s is sealed as %s", sealed, again)
		}
	})
}
