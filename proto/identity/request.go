package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"fmt"
)

// maxRequest is how large a certificate request may be, in bytes. One with a key of a kind that is issued for takes some 300.
const maxRequest = 8 << 10

// RequestedKey returns the key that a certificate request (PKCS #10, DER) proves to hold the private half of: ECDSA on P-256, or Ed25519. Nothing else of the request is
// looked at: it is not for the requester to say what the certificate holds. Its errors follow "the certificate request cannot be used: ".
func RequestedKey(der []byte) (crypto.PublicKey, error) {
	if len(der) == 0 || len(der) > maxRequest {
		return nil, fmt.Errorf("it has %d bytes, a certificate request has 1 to %d", len(der), maxRequest)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, errors.New("it is not a certificate request (PKCS #10, DER)")
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return nil, errors.New("its key is ECDSA on another curve than P-256: make one with P-256, or Ed25519")
		}
	case ed25519.PublicKey:
	default:
		return nil, fmt.Errorf("its key is %s: make one that is ECDSA with P-256, or Ed25519", request.PublicKeyAlgorithm)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, errors.New("it is not signed by its own key")
	}
	return request.PublicKey, nil
}
