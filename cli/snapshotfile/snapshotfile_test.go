package snapshotfile_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/cli/snapshotfile"
	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/proto/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var database = bytes.Repeat([]byte("a database "), 50)

// newKey makes a recovery key.
func newKey(t testing.TB) *recovery.Key {
	t.Helper()
	text, _, err := recovery.New(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	key, err := recovery.Parse(text, "the key")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// made is a file as a cluster sends it, with this in the place of the database and its hash, sealed to a key; nil: to nobody.
func made(t testing.TB, content []byte, key *recovery.Key) []byte {
	t.Helper()
	var payload bytes.Buffer
	sealed, recipient := io.WriteCloser(nopCloser{&payload}), ""
	if key != nil {
		recipient = key.Recipient
		to, err := age.ParseX25519Recipient(recipient)
		if err != nil {
			t.Fatal(err)
		}
		if sealed, err = age.Encrypt(&payload, to); err != nil {
			t.Fatal(err)
		}
	}
	compressed, err := zstd.NewWriter(sealed)
	if err != nil {
		t.Fatal(err)
	}
	_, err = compressed.Write(content)
	if err := errors.Join(err, compressed.Close(), sealed.Close()); err != nil {
		t.Fatal(err)
	}
	manifest := snapshot.Manifest{
		ClusterID: "c-1", NodeID: "reeve-1", MemberID: "1", Time: time.Unix(1, 0).UTC(), Revision: 7, ReeveVersion: "1", Compression: snapshot.Compression, Recipient: recipient,
		DatabaseSize: int64(len(database)), DatabaseSHA256: fmt.Sprintf("%x", sha256.Sum256(database)),
		PayloadSize: int64(payload.Len()), PayloadSHA256: fmt.Sprintf("%x", sha256.Sum256(payload.Bytes())),
	}
	line, err := manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a CA"}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), KeyUsage: x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true, URIs: []*url.URL{identity.ClusterURI(identity.TrustDomain("c-1"))},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	header, err := snapshot.Sign(line, certificate, private)
	if err != nil {
		t.Fatal(err)
	}
	return append(header.Marshal(), payload.Bytes()...)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// whole is the database with its hash.
func whole() []byte {
	sum := sha256.Sum256(database)
	return append(bytes.Clone(database), sum[:]...)
}

// keep writes a file.
func keep(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// anyCA takes a snapshot whoever has signed it.
func anyCA(*snapshot.Header) error { return nil }

// TestInspectEnds ends a check from outside, and by a CA that is not the right one before the payload is looked at.
func TestInspectEnds(t *testing.T) {
	content := made(t, whole(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	stop := func(*snapshot.Header) error { cancel(); return nil }
	if _, _, err := snapshotfile.Inspect(ctx, keep(t, content), nil, "", stop); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("interrupted: %v", err)
	}
	stranger := errors.New("of somebody else")
	if _, _, err := snapshotfile.Inspect(t.Context(), keep(t, content[:len(content)-1]), nil, "", func(*snapshot.Header) error { return stranger }); !errors.Is(err, stranger) {
		t.Errorf("of another CA: %v", err)
	}
}

func TestInspect(t *testing.T) {
	key, other := newKey(t), newKey(t)
	for name, test := range map[string]struct {
		content []byte
		sealed  *recovery.Key
		key     *recovery.Key
		opened  bool
		code    fault.Code
		text    string
	}{
		"sealed, without the key":         {whole(), key, nil, false, fault.OK, ""},
		"sealed, with the key":            {whole(), key, key, true, fault.OK, ""},
		"sealed, with another key":        {whole(), key, other, false, fault.Refused, "is for " + key.Recipient + ", and this key is " + other.Recipient},
		"not sealed":                      {whole(), nil, nil, true, fault.OK, ""},
		"not sealed, with a key":          {whole(), nil, key, true, fault.OK, ""},
		"another database":                {append([]byte("b"), whole()[1:]...), key, key, false, fault.Failed, "another hash"},
		"another hash behind it":          {append(whole()[:len(whole())-1], 0), key, key, false, fault.Failed, "another hash"},
		"a database that is too short":    {whole()[:100], key, key, false, fault.Failed, "ends too early"},
		"a database without its hash":     {database, key, key, false, fault.Failed, "does not end as the manifest says"},
		"a database with something after": {append(whole(), 0), nil, nil, false, fault.Failed, "does not end as the manifest says"},
	} {
		header, opened, err := snapshotfile.Inspect(t.Context(), keep(t, made(t, test.content, test.sealed)), test.key, "the key", anyCA)
		if err != nil && (fault.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.text)) || err == nil && test.code != fault.OK {
			t.Errorf("%s: %v", name, err)
		}
		if opened != test.opened || err == nil && header.Manifest.Revision != 7 {
			t.Errorf("%s: opened %t, %+v", name, opened, header)
		}
	}
}

// TestDamagedFiles cuts a file and flips bits in it, and looks at it with and without the key. The package proto/snapshot does so at every byte, without a look into the payload.
func TestDamagedFiles(t *testing.T) {
	key := newKey(t)
	file := made(t, whole(), key)
	path := keep(t, file)
	for n := 0; n < len(file); n += 7 {
		flipped := bytes.Clone(file)
		flipped[n] ^= 1 << (n % 8)
		for what, content := range map[string][]byte{"cut off": file[:n], "flipped": flipped} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, key := range []*recovery.Key{nil, key} {
				_, opened, err := snapshotfile.Inspect(t.Context(), path, key, "the key", anyCA)
				if err == nil || opened || fault.CodeOf(err) != fault.Failed {
					t.Fatalf("%s at byte %d of %d, with a key %t: opened %t, %v", what, n, len(file), key != nil, opened, err)
				}
			}
		}
	}
}

// fill writes a file.
func fill(t testing.TB, path string, from io.Reader, check error) error {
	t.Helper()
	file, err := snapshotfile.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Fill(from, func(*snapshot.Header) error { return check }, func(int64, int64) {}); err != nil {
		return err
	}
	return file.Finish()
}

// partOf is the path of a file while it is not complete.
func partOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".reeve-snapshot.part")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func TestWrite(t *testing.T) {
	content := made(t, whole(), nil)
	path := filepath.Join(t.TempDir(), "snapshot")
	// What is left of a command that was killed is written anew.
	if err := os.WriteFile(partOf(path), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fill(t, path, bytes.NewReader(content), nil); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	info, _ := os.Stat(path)
	if err != nil || !bytes.Equal(got, content) || info.Mode() != 0o600 || exists(partOf(path)) {
		t.Errorf("%d bytes of %d with mode %v; an incomplete one is there: %t, %v", len(got), len(content), info.Mode(), exists(partOf(path)), err)
	}
	if err := fill(t, path, bytes.NewReader(content), nil); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "never overwritten") {
		t.Errorf("a second time: %v", err)
	}
}

// TestForeignPart holds that nothing is written into a file that somebody else can read, or that has another name, and that such a file is not changed.
func TestForeignPart(t *testing.T) {
	for name, prepare := range map[string]func(part, other string) error{
		"others can read it":     func(part, _ string) error { return os.Chmod(part, 0o640) },
		"it has another name":    func(part, other string) error { return os.Link(part, other) },
		"it is a link":           func(part, other string) error { return errors.Join(os.Rename(part, other), os.Symlink(other, part)) },
		"it is a FIFO":           func(part, other string) error { return errors.Join(os.Rename(part, other), unix.Mkfifo(part, 0o600)) },
		"it is a directory":      func(part, other string) error { return errors.Join(os.Rename(part, other), os.Mkdir(part, 0o700)) },
		"it is of somebody else": func(part, _ string) error { return os.Chown(part, 12345, -1) },
	} {
		path := filepath.Join(t.TempDir(), "snapshot")
		part, other := partOf(path), path+".other"
		if err := os.WriteFile(part, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := prepare(part, other)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EINVAL) {
			continue // only root can give a file away
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshotfile.Create(path); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), part+" is there") {
			t.Errorf("%s: %v", name, err)
		}
		file := part
		if exists(other) {
			file = other
		}
		if content, err := os.ReadFile(file); string(content) != "x" {
			t.Errorf("%s: it has %q, %v", name, content, err)
		}
	}
}

// TestNothingIsKept holds that nothing stays of a file that is not complete, or is not what was asked for.
func TestNothingIsKept(t *testing.T) {
	content := made(t, whole(), nil)
	path := filepath.Join(t.TempDir(), "snapshot")
	broken, refused := errors.New("the connection broke"), errors.New("it is not the cluster's")
	damaged := bytes.Clone(content)
	damaged[len(damaged)-1] ^= 1
	for name, test := range map[string]struct {
		from  io.Reader
		check error
		want  string
	}{
		"cut off":       {bytes.NewReader(content[:len(content)-1]), nil, "cut off"},
		"damaged":       {bytes.NewReader(damaged), nil, "damaged"},
		"not ours":      {bytes.NewReader(content), refused, refused.Error()},
		"broken off":    {io.MultiReader(bytes.NewReader(content[:len(content)/2]), failing{broken}), nil, broken.Error()},
		"nothing comes": {failing{broken}, nil, broken.Error()},
		"no snapshot":   {strings.NewReader("something else"), nil, "not a snapshot of Reeve"},
	} {
		if err := fill(t, path, test.from, test.check); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if exists(path) || exists(partOf(path)) {
			t.Errorf("%s: something is left", name)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestOneWriter holds that two commands do not write the same file.
func TestOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	first, err := snapshotfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snapshotfile.Create(path); fault.CodeOf(err) != fault.Refused || !strings.Contains(err.Error(), "another reeve writes") {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	second, err := snapshotfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := snapshotfile.Create(filepath.Join(path, "in a directory that is not there")); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("nowhere: %v", err)
	}
}

// TestFormat1 reads a file of the first format, which must never become unreadable.
func TestFormat1(t *testing.T) {
	key, err := recovery.ReadFile(filepath.Join("testdata", "recovery.key"))
	if err != nil {
		t.Fatal(err)
	}
	header, opened, err := snapshotfile.Inspect(t.Context(), filepath.Join("testdata", "format-1.snapshot"), key, "the key", anyCA)
	if err != nil || !opened {
		t.Fatalf("opened %t, %v", opened, err)
	}
	manifest := *header.Manifest
	if manifest.ClusterID != "c-1" || manifest.Revision != 7 || manifest.Recipient != key.Recipient || manifest.DatabaseSize != int64(len(database)) {
		t.Errorf("%+v", manifest)
	}
}
