package attest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/reeveproject/reeve/proto/limits"
)

// PayloadType is that of the envelope's payload: an in-toto statement.
const PayloadType = "application/vnd.in-toto+json"

// ErrSignature says that an envelope was not signed by the key with which it was verified, or was changed since.
var ErrSignature = errors.New("the signature is not that of the key, or the report was changed after it was signed")

type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// Signed is an opened envelope. What is in it counts for nothing before it was verified.
type Signed struct {
	// Key is the one by which the envelope says that it was signed: a hint, by which the caller finds out whether it knows the key.
	Key ed25519.PublicKey

	payload, signature []byte
}

// KeyID is how an envelope names the key of its signature: base64 of its 32 bytes, as the command line prints public keys.
func KeyID(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// Sign returns the envelope of a report.
func Sign(report *Report, key ed25519.PrivateKey) ([]byte, error) {
	if err := report.check(); err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	payload, err := json.Marshal(report.statement())
	if err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	sealed, err := json.Marshal(envelope{
		PayloadType: PayloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []signature{{
			KeyID: KeyID(key.Public().(ed25519.PublicKey)), Sig: base64.StdEncoding.EncodeToString(ed25519.Sign(key, encoding(PayloadType, payload))),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("attest: %w", err)
	}
	sealed = append(sealed, '\n')
	if len(sealed) > limits.Attestation {
		return nil, fmt.Errorf("attest: the report has %d bytes, at most %d fit", len(sealed), limits.Attestation)
	}
	return sealed, nil
}

// Open reads an envelope, without a look at what is in it.
func Open(text []byte) (*Signed, error) {
	if len(text) > limits.Attestation {
		return nil, fmt.Errorf("attest: the report has more than %d bytes", limits.Attestation)
	}
	var sealed envelope
	if err := decode(text, &sealed); err != nil {
		return nil, fmt.Errorf("attest: the envelope: %w", err)
	}
	if sealed.PayloadType != PayloadType {
		return nil, fmt.Errorf("attest: the envelope holds %s, and a report is %q", quote(sealed.PayloadType), PayloadType)
	}
	if n := len(sealed.Signatures); n != 1 {
		return nil, fmt.Errorf("attest: the envelope has %d signatures, and a report has 1", n)
	}
	payload, err := bytesOf(sealed.Payload)
	if err != nil {
		return nil, fmt.Errorf("attest: the payload of the envelope is not base64: %w", err)
	}
	signed, err := bytesOf(sealed.Signatures[0].Sig)
	if err != nil || len(signed) != ed25519.SignatureSize {
		return nil, fmt.Errorf("attest: the signature of the envelope is not one of Ed25519: base64 of %d bytes", ed25519.SignatureSize)
	}
	key, err := bytesOf(sealed.Signatures[0].KeyID)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("attest: the envelope names no Ed25519 key as the one that signed it (keyid): base64 of %d bytes", ed25519.PublicKeySize)
	}
	return &Signed{Key: key, payload: payload, signature: signed}, nil
}

// Verify returns the report, if the key has signed it. The error is ErrSignature if it has not.
func (s *Signed) Verify(key ed25519.PublicKey) (*Report, error) {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, encoding(PayloadType, s.payload), s.signature) {
		return nil, fmt.Errorf("attest: %w", ErrSignature)
	}
	var found statement
	if err := decode(s.payload, &found); err != nil {
		return nil, fmt.Errorf("attest: the statement: %w", err)
	}
	report, err := found.report()
	if err != nil {
		return nil, fmt.Errorf("attest: the statement: %w", err)
	}
	return report, nil
}

// encoding is what is signed: DSSE's pre-authentication encoding, in which nothing of the payload can be taken for its type.
func encoding(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// bytesOf reads base64 in either alphabet, as DSSE demands of its readers.
func bytesOf(text string) ([]byte, error) {
	found, err := base64.StdEncoding.Strict().DecodeString(text)
	if err == nil {
		return found, nil
	}
	if found, other := base64.URLEncoding.Strict().DecodeString(text); other == nil {
		return found, nil
	}
	return nil, err
}
