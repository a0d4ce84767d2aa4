package recovery_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/keys"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/seal/recovery"
	"github.com/reeveproject/reeve/core/storage"
)

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

func recovered(t testing.TB) *recovery.Recovered {
	t.Helper()
	owner, node, err := ed25519.GenerateKey(nil)
	must(t, err)
	_, join, err := ed25519.GenerateKey(nil)
	must(t, err)
	return &recovery.Recovered{
		ClusterID: "c1", NodeKey: node, JoinKey: join, Owner: owner, Kind: "luks", Location: `/dev/disk/by-id/"a" <&`, Sealer: "tpm2", NUK: random(t, keys.Size), CUK: random(t, keys.Size),
		Data: random(t, 64), Registration: &seal.Registration{TicketID: "t1", CAPins: [][]byte{{1, 2}, {3}}, Curators: []string{"a:1", "b:2"}},
	}
}

// written writes a recovery file for a new recovery key.
func written(t testing.TB, r *recovery.Recovered) (path string, identity *age.X25519Identity) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	path = filepath.Join(t.TempDir(), "recovery.age")
	must(t, recovery.Write(path, identity.Recipient().String(), r))
	return path, identity
}

// decrypt is what the owner does, by the age library alone.
func decrypt(t testing.TB, file []byte, identity age.Identity) []byte {
	t.Helper()
	plain, err := age.Decrypt(bytes.NewReader(file), identity)
	must(t, err)
	content, err := io.ReadAll(plain)
	must(t, err)
	return content
}

func TestRoundTrip(t *testing.T) {
	classic, err := age.GenerateX25519Identity()
	must(t, err)
	hybrid, err := age.GenerateHybridIdentity()
	must(t, err)
	for name, key := range inorder.Of(map[string]struct {
		identity  age.Identity
		recipient string
	}{"X25519": {classic, classic.Recipient().String()}, "post-quantum": {hybrid, hybrid.Recipient().String()}}) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "recovery.age")
			if _, _, err := recovery.Read(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("before there is one: %v", err)
			}
			if err := recovery.Check(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("before there is one: %v", err)
			}
			want := recovered(t)
			must(t, recovery.Recipient(key.recipient))
			must(t, recovery.Write(path, key.recipient, want))
			must(t, recovery.Check(path))
			file, recipient, err := recovery.Read(path)
			if err != nil || recipient != key.recipient {
				t.Fatalf("recipient %q, %v", recipient, err)
			}
			if onDisk, err := os.ReadFile(path); err != nil || !bytes.Equal(onDisk, file) {
				t.Errorf("the file is not what is on disk: %v", err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o400 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			plain := decrypt(t, file, key.identity)
			var document map[string]any
			if err := json.Unmarshal(plain, &document); err != nil || document["version"] != 1.0 || document["cluster_id"] != "c1" {
				t.Errorf("what was encrypted is no versioned JSON: %v", err)
			}
			got, err := recovery.Parse(plain)
			must(t, err)
			defer got.Destroy()
			want.Recipient = key.recipient // which Write has added
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if !bytes.Equal(plain, make([]byte, len(plain))) {
				t.Error("what was parsed is still in memory")
			}
			other, err := age.GenerateX25519Identity()
			must(t, err)
			var wrong *age.NoIdentityMatchError
			if _, err := age.Decrypt(bytes.NewReader(file), other); !errors.As(err, &wrong) {
				t.Errorf("by another key: %v", err)
			}
		})
	}
}

func TestRecipient(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	for _, text := range []string{"", "age1", "age1qqqq", "ssh-ed25519 AAAA", identity.Recipient().String() + "q", strings.ToUpper(identity.Recipient().String()), "age1pq1qqqq", "age1yubikey1q"} {
		if err := recovery.Recipient(text); err == nil || !strings.Contains(err.Error(), "age1") || !strings.Contains(err.Error(), "reeve recovery-key new") {
			t.Errorf("%q: %v", text, err)
		}
	}
	err = recovery.Recipient(identity.String())
	if err == nil || strings.Contains(err.Error(), identity.String()) || !strings.Contains(err.Error(), "secret half") {
		t.Errorf("the secret half: %v", err)
	}
	path := filepath.Join(t.TempDir(), "recovery.age")
	if err := recovery.Write(path, "age1", recovered(t)); err == nil {
		t.Error("written for nobody")
	}
	incomplete := recovered(t)
	incomplete.CUK.Destroy()
	if err := recovery.Write(path, identity.Recipient().String(), incomplete); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("written without a CUK: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Whatever happens to the file is seen without the recovery key, and the recovery key opens nothing else than what was written.
func TestDamaged(t *testing.T) {
	path, identity := written(t, recovered(t))
	good, err := os.ReadFile(path)
	must(t, err)
	plain := decrypt(t, good, identity)
	file := reopen(t, path)
	check := func(what string, content []byte) {
		t.Helper()
		rewrite(t, file, content)
		var damaged *recovery.DamagedError
		if err := recovery.Check(path); !errors.As(err, &damaged) || damaged.Path != path || !strings.Contains(err.Error(), "reeve node keys rotate") {
			t.Fatalf("%s: %v", what, err)
		}
		// It is handed out as far as it is one, and the owner finds out.
		if got, _, err := recovery.Read(path); err == nil && !bytes.Equal(got, content) {
			t.Fatalf("%s: read otherwise than it is", what)
		} else if err != nil && !errors.As(err, &damaged) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	opens := func(content []byte) {
		t.Helper()
		opened, err := age.Decrypt(bytes.NewReader(content), identity)
		if err != nil {
			return
		}
		if all, err := io.ReadAll(opened); err == nil && !bytes.Equal(all, plain) {
			t.Fatal("a damaged file opens to something else")
		}
	}
	for i := range good {
		if i%16 == 0 {
			opens(good[:i])
		}
		check("cut off", good[:i])
		flipped := bytes.Clone(good)
		flipped[i] ^= 1 << (i % 8)
		check("a flipped bit", flipped)
		if i%16 == 0 {
			opens(flipped)
		}
	}
	newer := bytes.Replace(good, []byte("-> reeve-recovery 1 "), []byte("-> reeve-recovery 2 "), 1)
	check("newer", newer)
	var version *storage.VersionError
	if _, _, err := recovery.Read(path); !errors.As(err, &version) || version.Found != 2 {
		t.Errorf("newer: %v", err)
	}
	var foreign bytes.Buffer
	w, err := age.Encrypt(&foreign, identity.Recipient())
	must(t, err)
	must(t, w.Close())
	check("an age file of somebody else", foreign.Bytes())
	rewrite(t, file, good)
	must(t, recovery.Check(path))
	must(t, os.Remove(path+".sha256"))
	var damaged *recovery.DamagedError
	if err := recovery.Check(path); !errors.As(err, &damaged) {
		t.Errorf("without its digest: %v", err)
	}
	if _, _, err := recovery.Read(path); err != nil {
		t.Errorf("without its digest it is still handed out: %v", err)
	}
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	if _, _, err := recovery.Read(path); !errors.As(err, &damaged) {
		t.Errorf("a directory: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	path, identity := written(t, recovered(t))
	file, _, err := recovery.Read(path)
	must(t, err)
	good := decrypt(t, file, identity)
	var fields map[string]any
	must(t, json.Unmarshal(good, &fields))
	encode := func(name string, value any) []byte {
		changed := map[string]any{}
		for key, kept := range fields {
			changed[key] = kept
		}
		changed[name] = value
		content, err := json.Marshal(changed)
		must(t, err)
		return content
	}
	got, err := recovery.Parse(encode("volume_location", "elsewhere"))
	if err != nil || got.Location != "elsewhere" {
		t.Fatalf("the test refuses by changing nothing: %v", err)
	}
	got.Destroy()
	old, err := recovery.Parse(encode("registration", nil))
	if err != nil || old.Registration != nil {
		t.Fatalf("the file of an older node: %v", err)
	}
	old.Destroy()
	for name, value := range map[string]any{
		"registration": map[string]any{"curators": []string{"a:1"}},
		"cluster_id":   "", "owner_public_key": "AAAA", "volume_kind": "", "node_key": "AAAA", "join_key": nil, "nuk": "AAAA", "cuk": "not base64", "data_key": "",
	} {
		content := encode(name, value)
		if got, err := recovery.Parse(content); got != nil || !errors.Is(err, recovery.ErrNotRecovered) {
			t.Errorf("%s %v: %v, %v", name, value, got, err)
		}
		if !bytes.Equal(content, make([]byte, len(content))) {
			t.Errorf("%s %v: what was refused is still in memory", name, value)
		}
	}
	var version *storage.VersionError
	if _, err := recovery.Parse(encode("version", 2)); !errors.As(err, &version) || version.Found != 2 || !strings.Contains(err.Error(), "a newer one") {
		t.Errorf("newer: %v", err)
	}
	for i := range good {
		cut := bytes.Clone(good[:i])
		if got, err := recovery.Parse(cut); err == nil {
			// What is cut off is only the padding.
			if i < len(bytes.TrimRight(good, " \n")) {
				t.Fatalf("cut off at %d: %v", i, got)
			}
			got.Destroy()
		}
	}
}

// Whatever is said to have been in a recovery file is either all that opens a volume or an error, and is zeroed.
func FuzzParse(f *testing.F) {
	file, _, err := recovery.Read("testdata/recovery.age")
	must(f, err)
	key, err := os.Open("testdata/recovery-key.txt")
	must(f, err)
	defer key.Close()
	identities, err := age.ParseIdentities(key)
	must(f, err)
	f.Add(decrypt(f, file, identities[0]))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"nuk":"AAAA","NUK":"AAAA","node_key":null}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, content []byte) {
		mine := bytes.Clone(content)
		got, err := recovery.Parse(mine)
		if (got == nil) == (err == nil) {
			t.Fatalf("%v, %v", got, err)
		}
		if !bytes.Equal(mine, make([]byte, len(mine))) {
			t.Fatal("it is still in memory")
		}
		if got != nil {
			if got.NUK.Len() != keys.Size || got.CUK.Len() != keys.Size || got.Data.Len() == 0 || got.ClusterID == "" {
				t.Fatalf("incomplete: %v", got)
			}
			got.Destroy()
		}
	})
}

// Whatever is in the file, what is read of it is a recipient or an error.
func FuzzRead(f *testing.F) {
	good, _, err := recovery.Read("testdata/recovery.age")
	must(f, err)
	path := filepath.Join(f.TempDir(), "recovery.age")
	must(f, os.WriteFile(path, good, 0o600))
	file := reopen(f, path)
	f.Add(good)
	f.Add([]byte("age-encryption.org/v1\n-> reeve-recovery 1 age1\n--- \n1"))
	f.Add([]byte("age-encryption.org/v1\n-> reeve-recovery 2 \n---"))
	f.Fuzz(func(t *testing.T, content []byte) {
		rewrite(t, file, content)
		got, recipient, err := recovery.Read(path)
		var damaged *recovery.DamagedError
		if err != nil {
			if !errors.As(err, &damaged) || damaged.Path != path {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(got, content) || recovery.Recipient(recipient) != nil {
			t.Fatalf("recipient %q", recipient)
		}
	})
}
