package restore_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/reeveproject/reeve/core/restore"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// write writes a snapshot of a database, sealed to an identity if there is one, and returns its file.
func write(t *testing.T, database []byte, to *age.X25519Identity) string {
	t.Helper()
	sum := sha256.Sum256(database)
	var payload bytes.Buffer
	out, recipient := io.WriteCloser(nopCloser{&payload}), ""
	if to != nil {
		var err error
		if out, err = age.Encrypt(&payload, to.Recipient()); err != nil {
			t.Fatal(err)
		}
		recipient = to.Recipient().String()
	}
	compressed, err := zstd.NewWriter(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{database, sum[:]} {
		if _, err := compressed.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(compressed.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	manifest := &snapshot.Manifest{
		ClusterID: "c1", NodeID: "reeve-1", MemberID: "1", Time: time.Unix(1, 0), Revision: 7, ReeveVersion: "1", Compression: snapshot.Compression, Recipient: recipient,
		DatabaseSize: int64(len(database)), DatabaseSHA256: fmt.Sprintf("%x", sum), PayloadSize: int64(payload.Len()), PayloadSHA256: fmt.Sprintf("%x", sha256.Sum256(payload.Bytes())),
	}
	line, err := manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "c1"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{{Scheme: "spiffe", Host: "c1.reeve"}},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	header, err := snapshot.Sign(line, certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, append(header.Marshal(), payload.Bytes()...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func any(*snapshot.Header) error { return nil }

// role takes what it is sent, up to a number of bytes; 0: all.
type role struct {
	consensusv1.ConsensusServiceClient
	grpc.ClientStream
	most     int
	manifest []byte
	data     []byte
	ended    bool // it was told that it has all
}

func (r *role) ReceiveSnapshot(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[consensusv1.ReceiveSnapshotRequest, consensusv1.ReceiveSnapshotResponse], error) {
	return r, nil
}

func (r *role) Send(request *consensusv1.ReceiveSnapshotRequest) error {
	if r.most > 0 && len(r.data) >= r.most {
		return io.EOF
	}
	r.manifest = append(r.manifest, request.GetManifest()...)
	r.data = append(r.data, request.GetData()...)
	return nil
}

func (r *role) CloseAndRecv() (*consensusv1.ReceiveSnapshotResponse, error) {
	r.ended = true
	return &consensusv1.ReceiveSnapshotResponse{}, nil
}

func TestSend(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key, err := restore.ReadKey(strings.NewReader("# a comment\n"+identity.String()+"\n"), "the file")
	if err != nil {
		t.Fatal(err)
	}
	database := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	sum := sha256.Sum256(database)
	for name, path := range map[string]string{"sealed": write(t, database, identity), "open": write(t, database, nil)} {
		t.Run(name, func(t *testing.T) {
			seen := int64(0)
			opened, err := restore.Open(t.Context(), path, key, any, func(done, all int64) {
				if seen = done; all != int64(len(database)) {
					t.Errorf("%d of %d bytes", done, all)
				}
			})
			if err != nil || opened.Manifest.ClusterID != "c1" || seen < int64(len(database)) {
				t.Fatalf("%v; %d bytes were checked", err, seen)
			}
			to := &role{}
			if err := opened.Send(t.Context(), to, nil); err != nil {
				t.Fatal(err)
			}
			if manifest, err := snapshot.ParseManifest(to.manifest); err != nil || manifest.Revision != 7 || !bytes.Equal(to.data, append(bytes.Clone(database), sum[:]...)) {
				t.Errorf("manifest %v, %v, and %d bytes", manifest, err, len(to.data))
			}
			// A role that has all that it needs reads no more.
			if err := opened.Send(t.Context(), &role{most: 1}, nil); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(path, []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := opened.Send(t.Context(), &role{}, nil); err == nil {
				t.Error("another file was sent")
			}
		})
	}
}

// A file that another CA has signed is told from the cluster's own, also where a CA was rotated and there are two.
func TestCA(t *testing.T) {
	ours, theirs := write(t, []byte("ours"), nil), write(t, []byte("theirs"), nil)
	var text []byte
	for _, path := range []string{write(t, []byte("former"), nil), ours} {
		opened, err := restore.Open(t.Context(), path, nil, any, nil)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: opened.Authority.Raw})...)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ca, err := restore.ReadCA(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restore.Open(t.Context(), ours, nil, ca.Check, nil); err != nil {
		t.Error(err)
	}
	if _, err := restore.Open(t.Context(), theirs, nil, ca.Check, nil); err == nil || !strings.Contains(err.Error(), "which is not in "+file) {
		t.Errorf("a forged one: %v", err)
	}
	for _, none := range []string{"", ours} {
		if _, err := restore.ReadCA(none); err == nil {
			t.Errorf("%q is taken for a CA", none)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := restore.ReadKey(strings.NewReader(other.String()), "the file")
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, []byte("a database"), identity)
	open := func(path string, key *restore.Key, check func(*snapshot.Header) error) error {
		_, err := restore.Open(t.Context(), path, key, check, nil)
		return err
	}
	if err := open(path, nil, any); err == nil || !strings.Contains(err.Error(), "--recovery-key") {
		t.Errorf("without a key: %v", err)
	}
	if err := open(path, wrong, any); err == nil || !strings.Contains(err.Error(), identity.Recipient().String()) {
		t.Errorf("with another key: %v", err)
	}
	unwanted := errors.New("unwanted")
	if err := open(path, nil, func(*snapshot.Header) error { return unwanted }); !errors.Is(err, unwanted) {
		t.Errorf("one that is not wanted: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// Nobody writes to it, so whoever waits for that waits for ever.
	if err := open(pipe, nil, any); err == nil || !strings.Contains(err.Error(), "it is a pipe") {
		t.Errorf("a pipe: %v", err)
	}
	if _, err := restore.ReadKeyFile(pipe); err == nil || !strings.Contains(err.Error(), "it is a pipe") {
		t.Errorf("a pipe for the key: %v", err)
	}
	if _, err := restore.ReadKey(strings.NewReader("AGE-SECRET-KEY-1SECRET"), "the file"); err == nil || strings.Contains(err.Error(), "1SECRET") {
		t.Errorf("no key: %v", err)
	}
}

// A file that was cut off or changed is refused by what is wrong with it, also with the right key, and the role is sent nothing of it.
func TestDamaged(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key, err := restore.ReadKey(strings.NewReader(identity.String()), "the file")
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]*age.X25519Identity{"sealed": identity, "open": nil} {
		t.Run(name, func(t *testing.T) {
			path := write(t, []byte("a database"), to)
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := restore.Open(t.Context(), path, key, any, nil)
			if err != nil {
				t.Fatal(err)
			}
			header := len(whole.Marshal())
			refuse := func(damaged []byte, what, cause string) {
				t.Helper()
				if err := os.WriteFile(path, damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := restore.Open(t.Context(), path, key, any, nil); err == nil || !strings.Contains(err.Error(), "cannot restore from "+path+": snapshot: ") || !strings.Contains(err.Error(), cause) {
					t.Fatalf("%s: %v, want %q", what, err, cause)
				}
				sent := &role{}
				if err := whole.Send(t.Context(), sent, nil); err == nil || !strings.Contains(err.Error(), cause) {
					t.Fatalf("%s, after it was checked: %v, want %q", what, err, cause)
				}
				if len(sent.data) > 0 || sent.ended {
					t.Fatalf("%s: the role was sent %d bytes; told that it is all: %v", what, len(sent.data), sent.ended)
				}
			}
			for length := range content {
				cause := "cut off in its "
				switch {
				case length < len("reeve snapshot "):
					cause = "it is not a snapshot of Reeve"
				case length >= header:
					cause = fmt.Sprintf("the snapshot is cut off: %d bytes of its payload of %d are there", length-header, len(content)-header)
				}
				refuse(content[:length], fmt.Sprintf("the first %d bytes of %d", length, len(content)), cause)
			}
			for at := range content {
				cause := ""
				if at >= header {
					cause = "its payload is damaged: it has another hash than the manifest says"
				}
				changed := bytes.Clone(content)
				changed[at] ^= 1 << (at % 8)
				refuse(changed, fmt.Sprintf("a changed bit of byte %d", at), cause)
			}
			if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
				t.Errorf("%v, %v are beside the snapshot", files, err)
			}
		})
	}
}
