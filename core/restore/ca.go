package restore

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"slices"

	"github.com/reeveproject/reeve/proto/plainfile"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// maxCA bounds what is read as the certificates of a CA.
const maxCA = 1 << 20

// CA is what a cluster's snapshots are signed by.
type CA struct {
	path         string
	certificates []*x509.Certificate
}

// ReadCA reads what `reeve ca` has written.
func ReadCA(path string) (*CA, error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's CA: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, maxCA))
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's CA: %w", err)
	}
	ca := &CA{path: path}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s does not hold a cluster's CA: %w", path, err)
		}
		ca.certificates = append(ca.certificates, certificate)
	}
	if len(ca.certificates) == 0 {
		return nil, fmt.Errorf("%s does not hold a cluster's CA: name what `reeve ca` has written", path)
	}
	return ca, nil
}

// Check says whether the CA has signed a snapshot.
func (c *CA) Check(header *snapshot.Header) error {
	if slices.ContainsFunc(c.certificates, header.Authority.Equal) {
		return nil
	}
	return fmt.Errorf("it is signed by a CA with the key %s, which is not in %s. Use a snapshot of the cluster, or, if its CA was rotated since, the CA of when the snapshot was taken",
		snapshot.ShowKey(header.Authority), c.path)
}
