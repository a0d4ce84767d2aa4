package snapshot_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/reeveproject/reeve/proto/snapshot"
	"github.com/reeveproject/reeve/proto/snapshot/snapshottest"
)

const clusterID = "c-0123"

func sum(of []byte) string { return fmt.Sprintf("%x", sha256.Sum256(of)) }

// about is the manifest of a payload.
func about(payload []byte) *snapshot.Manifest {
	return &snapshot.Manifest{
		ClusterID: clusterID, NodeID: "reeve-1", MemberID: "8e9e05c52164694d", Time: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC),
		Revision: 4711, CompactRevision: 12, ReeveVersion: "0.1.0", StorageVersion: "3.7", Compression: snapshot.Compression, Recipient: "age1abc",
		DatabaseSize: 20480, DatabaseSHA256: sum([]byte("database")), PayloadSize: int64(len(payload)), PayloadSHA256: sum(payload),
	}
}

// file makes a whole file.
func file(t testing.TB, payload []byte) []byte {
	t.Helper()
	line, err := about(payload).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := snapshottest.Root(t, clusterID)
	header, err := snapshot.Sign(line, certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	whole := append(header.Marshal(), payload...)
	if int64(len(whole)) != header.Size() {
		t.Errorf("the file has %d bytes, and Size says %d", len(whole), header.Size())
	}
	return whole
}

// read reads a whole file.
func read(from io.Reader) (*snapshot.Header, []byte, error) {
	buffered := bufio.NewReader(from)
	header, err := snapshot.ReadHeader(buffered)
	if err != nil {
		return nil, nil, err
	}
	content, err := io.ReadAll(header.Payload(buffered))
	return header, content, err
}

var content = []byte("what is in the payload\nof a snapshot\x00\xff")

func TestRoundTrip(t *testing.T) {
	whole := file(t, content)
	for name, from := range map[string]io.Reader{
		"at once": bytes.NewReader(whole), "byte by byte": iotest.OneByteReader(bytes.NewReader(whole)), "with its end": iotest.DataErrReader(bytes.NewReader(whole)),
	} {
		header, got, err := read(from)
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		if want := *about(content); *header.Manifest != want {
			t.Errorf("%s: the manifest is %+v, want %+v", name, *header.Manifest, want)
		}
		if !bytes.HasPrefix(whole, header.Marshal()) {
			t.Errorf("%s: the header is another one than that of the file", name)
		}
	}
}

// TestTruncatedAtEveryLength holds that a file that ends too early is never taken for a whole one.
func TestTruncatedAtEveryLength(t *testing.T) {
	whole := file(t, content)
	headerSize := len(whole) - len(content)
	for length := range whole {
		_, _, err := read(bytes.NewReader(whole[:length]))
		var cut *snapshot.CutError
		switch {
		case err == nil:
			t.Fatalf("%d bytes of %d are taken for a snapshot", length, len(whole))
		case length >= headerSize && (!errors.As(err, &cut) || cut.Got != int64(length-headerSize) || cut.Want != int64(len(content))):
			t.Errorf("%d bytes: %v", length, err)
		case length > len("reeve snapshot ") && length < headerSize && !strings.Contains(err.Error(), "cut off"):
			t.Errorf("%d bytes: %v", length, err)
		}
	}
	if _, _, err := read(bytes.NewReader(append(bytes.Clone(whole), 0))); err == nil || !strings.Contains(err.Error(), "follows") {
		t.Errorf("with one byte more: %v", err)
	}
}

// TestEveryByteFlipped flips a bit in every byte.
func TestEveryByteFlipped(t *testing.T) {
	whole := file(t, content)
	for n := range whole {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1 << (n % 8)
		if header, _, err := read(bytes.NewReader(flipped)); err == nil {
			t.Errorf("with bit %d of byte %d flipped it is taken for a snapshot, with %+v", n%8, n, header.Manifest)
		}
	}
	// A letter in the other case is the same field for encoding/json.
	for _, name := range []string{"certificate", "signature"} {
		if _, _, err := read(bytes.NewReader(bytes.Replace(whole, []byte(`"`+name+`"`), []byte(`"`+strings.ToUpper(name)+`"`), 1))); err == nil {
			t.Errorf("with %s in capital letters it is taken for a snapshot", name)
		}
	}
}

func TestOtherFormats(t *testing.T) {
	whole := string(file(t, content))
	_, _, err := read(strings.NewReader(strings.Replace(whole, "reeve snapshot 1\n", "reeve snapshot 2\n", 1)))
	var format *snapshot.FormatError
	if !errors.As(err, &format) || format.Format != 2 || !strings.Contains(err.Error(), "use the version of Reeve that made it, or a later one") {
		t.Errorf("a newer format: %v", err)
	}
	for _, first := range []string{"", "reeve snapshot", "reeve snapshot 01\n", "reeve snapshot -1\n", "reeve snapshot 1.0\n", "reeve snapshot \n", "age-encryption.org/v1\n", strings.Repeat("x", 1<<20)} {
		if _, _, err := read(strings.NewReader(first)); !errors.Is(err, snapshot.ErrNone) {
			t.Errorf("%.40q: %v", first, err)
		}
	}
}

// TestForged holds that nobody but the CA can say something else than it signed, and that the CA of another cluster cannot sign for this one.
func TestForged(t *testing.T) {
	whole := file(t, content)
	changed := bytes.Replace(whole, []byte(`"revision":4711`), []byte(`"revision":4712`), 1)
	if _, _, err := read(bytes.NewReader(changed)); !errors.Is(err, snapshot.ErrSignature) {
		t.Errorf("with another revision: %v", err)
	}
	line, err := about(content).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := snapshottest.Root(t, "c-4567")
	if _, err := snapshot.Sign(line, certificate, key); err == nil || !strings.Contains(err.Error(), "another cluster's") {
		t.Errorf("signed by another cluster's CA: %v", err)
	}
	own, _ := snapshottest.Root(t, clusterID)
	if _, err := snapshot.Sign(line, own, key); !errors.Is(err, snapshot.ErrSignature) {
		t.Errorf("signed by another key than the certificate's: %v", err)
	}
	// What another CA of the same name has signed is told apart by its certificate.
	one, _, _ := read(bytes.NewReader(file(t, content)))
	other, _, _ := read(bytes.NewReader(file(t, content)))
	if one.Authority.Equal(other.Authority) {
		t.Error("two CAs have the same certificate")
	}
}

func TestManifestIsChecked(t *testing.T) {
	for name, change := range map[string]func(*snapshot.Manifest){
		"no cluster":              func(m *snapshot.Manifest) { m.ClusterID = "" },
		"two lines":               func(m *snapshot.Manifest) { m.NodeID = "a\nb" },
		"a long text":             func(m *snapshot.Manifest) { m.MemberID = strings.Repeat("a", 5000) },
		"no time":                 func(m *snapshot.Manifest) { m.Time = time.Time{} },
		"no revision":             func(m *snapshot.Manifest) { m.Revision = 0 },
		"compacted in the future": func(m *snapshot.Manifest) { m.CompactRevision = m.Revision + 1 },
		"another compression":     func(m *snapshot.Manifest) { m.Compression = "rot13" },
		"no hash":                 func(m *snapshot.Manifest) { m.PayloadSHA256 = "" },
		"half a hash":             func(m *snapshot.Manifest) { m.DatabaseSHA256 = m.DatabaseSHA256[:32] },
		"a hash in capitals":      func(m *snapshot.Manifest) { m.DatabaseSHA256 = strings.ToUpper(m.DatabaseSHA256) },
		"no payload":              func(m *snapshot.Manifest) { m.PayloadSize = 0 },
		"more keys of a user than there are": func(m *snapshot.Manifest) {
			m.Rehearsal = &snapshot.Rehearsal{Keys: 1, Users: map[string]int64{"ant": 2}}
		},
		"keys of nobody": func(m *snapshot.Manifest) {
			m.Rehearsal = &snapshot.Rehearsal{Keys: 1, Users: map[string]int64{"a/b": 1}}
		},
		"more records than there are keys": func(m *snapshot.Manifest) { m.Rehearsal = &snapshot.Rehearsal{Keys: 1, Records: 2} },
		"a size of no store":               func(m *snapshot.Manifest) { m.DatabaseSize = snapshot.MaxDatabase + 1 },
		"a negative size":                  func(m *snapshot.Manifest) { m.DatabaseSize = -1 },
	} {
		manifest := about(content)
		change(manifest)
		if line, err := manifest.Marshal(); err == nil {
			t.Errorf("%s: it is written as %s", name, line)
		}
	}
	line, err := about(content).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Replace(line, []byte("{"), []byte(`{"what a later version says":[1],`), 1)
	if got, err := snapshot.ParseManifest(later); err != nil || *got != *about(content) {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzReadHeader holds that whatever is read neither panics nor is written back as something else.
func FuzzReadHeader(f *testing.F) {
	whole := file(f, content)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("reeve snapshot 2\n"))
	f.Add([]byte("reeve snapshot 1\n{}\n{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		header, payload, err := read(bytes.NewReader(text))
		if header == nil {
			if err == nil {
				t.Error("neither a header nor an error")
			}
			return
		}
		if !bytes.HasPrefix(text, header.Marshal()) {
			t.Errorf("the header %q is written as %q", text, header.Marshal())
		}
		if err == nil && (int64(len(payload)) != header.Manifest.PayloadSize || int64(len(text)) != header.Size()) {
			t.Errorf("a payload of %d bytes in a file of %d, which should have %d", len(payload), len(text), header.Size())
		}
	})
}
