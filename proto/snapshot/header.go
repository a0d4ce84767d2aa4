package snapshot

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/reeveproject/reeve/proto/identity"
)

// magic is what the first line begins with; the number of the format follows.
const magic = "reeve snapshot "

// maxSignature is how long the line of the signature may be, in bytes. It has some 900.
const maxSignature = 16 << 10

// ErrNone says that what was read is not a snapshot.
var ErrNone = errors.New("it is not a snapshot of Reeve: it does not begin with \"" + magic + "\"")

// ErrSignature says that a snapshot was changed after the CA that it names had signed it.
var ErrSignature = errors.New("the signature does not fit the manifest: the file was changed, or is damaged")

// FormatError says that a snapshot is of a format that this version does not know.
type FormatError struct{ Format uint64 }

func (e *FormatError) Error() string {
	return fmt.Sprintf("the snapshot is of format %d, and this version knows format %d only: use the version of Reeve that made it, or a later one", e.Format, Format)
}

// CutError says that a snapshot ends too early.
type CutError struct{ Got, Want int64 }

func (e *CutError) Error() string {
	return fmt.Sprintf("the snapshot is cut off: %d bytes of its payload of %d are there", e.Got, e.Want)
}

// Header is what a file begins with. What is in it counts for nothing before the certificate is known to be the cluster's.
type Header struct {
	Manifest *Manifest
	// Authority is the certificate of the CA whose signature the header has. ReadHeader has checked the signature, and that the certificate names the manifest's cluster.
	Authority *x509.Certificate

	text []byte
}

// ShowKey returns the key of a CA as people see it, and as it is kept: the SHA-256 of it.
func ShowKey(authority *x509.Certificate) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(authority.RawSubjectPublicKeyInfo))
}

// signature is the third line.
type signature struct {
	Certificate []byte `json:"certificate"`
	Signature   []byte `json:"signature"`
}

// begin returns the first two lines, which are what is signed.
func begin(manifest []byte) []byte {
	return fmt.Appendf(nil, "%s%d\n%s\n", magic, Format, manifest)
}

// Sign returns the header of a file, with the line of its manifest as Marshal returned it. certificate is that of the CA whose key signs, DER.
func Sign(manifest, certificate []byte, key crypto.Signer) (*Header, error) {
	if bytes.ContainsAny(manifest, "\r\n") {
		return nil, errors.New("snapshot: the manifest is not one line")
	}
	text := begin(manifest)
	digest := sha256.Sum256(text)
	signed, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("snapshot: sign the manifest: %w", err)
	}
	line, err := json.Marshal(signature{Certificate: certificate, Signature: signed})
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return ReadHeader(bufio.NewReader(bytes.NewReader(slices.Concat(text, line, []byte{'\n'}))))
}

// Marshal returns the header as it is in a file.
func (h *Header) Marshal() []byte { return bytes.Clone(h.text) }

// Size is how long a whole file with this header is.
func (h *Header) Size() int64 { return int64(len(h.text)) + h.Manifest.PayloadSize }

// ReadHeader reads the header of a file; the payload follows in the reader. The error is ErrNone, *FormatError or ErrSignature by errors.Is and errors.As, if it is one of those.
func ReadHeader(from *bufio.Reader) (*Header, error) {
	first, err := readLine(from, len(magic)+20, "first line")
	number, ok := strings.CutPrefix(string(first), magic)
	if !ok {
		return nil, fmt.Errorf("snapshot: %w", ErrNone)
	}
	if err != nil {
		return nil, err
	}
	format, err := strconv.ParseUint(number, 10, 64)
	if err != nil || number != strconv.FormatUint(format, 10) {
		return nil, fmt.Errorf("snapshot: %w", ErrNone)
	}
	if format != Format {
		return nil, fmt.Errorf("snapshot: %w", &FormatError{Format: format})
	}
	manifest, err := readLine(from, MaxManifest, "manifest")
	if err != nil {
		return nil, err
	}
	line, err := readLine(from, maxSignature, "signature")
	if err != nil {
		return nil, err
	}
	h := &Header{text: slices.Concat(begin(manifest), line, []byte{'\n'})}
	var signed signature
	if err := json.Unmarshal(line, &signed); err != nil {
		return nil, fmt.Errorf("snapshot: the line of the signature is damaged: %w", err)
	}
	// Nothing of this line is signed, so it must be as Sign writes it.
	if again, err := json.Marshal(signed); err != nil || !bytes.Equal(again, line) {
		return nil, errors.New("snapshot: the line of the signature is damaged")
	}
	if h.Authority, err = authority(signed.Certificate); err != nil {
		return nil, fmt.Errorf("snapshot: the certificate of the CA: %w", err)
	}
	if err := h.Authority.CheckSignature(x509.ECDSAWithSHA256, begin(manifest), signed.Signature); err != nil {
		return nil, fmt.Errorf("snapshot: %w", ErrSignature)
	}
	if h.Manifest, err = ParseManifest(manifest); err != nil {
		return nil, err
	}
	if want := identity.ClusterURI(identity.TrustDomain(h.Manifest.ClusterID)); len(h.Authority.URIs) != 1 || h.Authority.URIs[0].String() != want.String() {
		return nil, fmt.Errorf("snapshot: its manifest is of cluster %s, and the CA that signed it is another cluster's", h.Manifest.ClusterID)
	}
	return h, nil
}

// authority reads the certificate of a root.
func authority(der []byte) (*x509.Certificate, error) {
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if _, ok := certificate.PublicKey.(*ecdsa.PublicKey); !ok || !certificate.IsCA {
		return nil, errors.New("it is not that of a cluster's CA")
	}
	// A root has signed itself: a byte of it that was changed shows.
	return certificate, certificate.CheckSignatureFrom(certificate)
}

// readLine reads a line of at most so many bytes, and returns it without its end. It returns what there is with an error too.
func readLine(from *bufio.Reader, most int, what string) ([]byte, error) {
	var line []byte
	for {
		next, err := from.ReadByte()
		switch {
		case err == io.EOF:
			return line, fmt.Errorf("snapshot: it is cut off in its %s", what)
		case err != nil:
			return line, fmt.Errorf("snapshot: read its %s: %w", what, err)
		case next == '\n':
			return line, nil
		case len(line) == most:
			return line, fmt.Errorf("snapshot: its %s has more than %d bytes", what, most)
		}
		line = append(line, next)
	}
}

// Payload returns what follows a header, up to its end. The reader fails with a *CutError if it ends too early, and with another error if it is not what the manifest says, or
// something follows it.
func (h *Header) Payload(from io.Reader) io.Reader {
	return &payload{from: from, left: h.Manifest.PayloadSize, manifest: h.Manifest, hash: sha256.New()}
}

type payload struct {
	from     io.Reader
	left     int64
	manifest *Manifest
	hash     interface {
		io.Writer
		Sum([]byte) []byte
	}
	ended error
}

// Read implements io.Reader.
func (p *payload) Read(into []byte) (int, error) {
	if p.ended != nil {
		return 0, p.ended
	}
	if p.left == 0 {
		p.ended = p.end()
		return 0, p.ended
	}
	n, err := p.from.Read(into[:min(int64(len(into)), p.left)])
	_, _ = p.hash.Write(into[:n])
	p.left -= int64(n)
	switch {
	case err == io.EOF && p.left > 0:
		p.ended = fmt.Errorf("snapshot: %w", &CutError{Got: p.manifest.PayloadSize - p.left, Want: p.manifest.PayloadSize})
	case err != nil && err != io.EOF:
		p.ended = err
	}
	return n, p.ended
}

// end returns io.EOF if the payload is what it should be.
func (p *payload) end() error {
	if fmt.Sprintf("%x", p.hash.Sum(nil)) != p.manifest.PayloadSHA256 {
		return errors.New("snapshot: its payload is damaged: it has another hash than the manifest says")
	}
	if n, err := io.ReadFull(p.from, make([]byte, 1)); n > 0 {
		return errors.New("snapshot: something follows its payload")
	} else if err != io.EOF {
		return err
	}
	return io.EOF
}
