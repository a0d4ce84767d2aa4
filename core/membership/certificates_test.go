package membership

import (
	"crypto/tls"
	"crypto/x509"
)

// What the bench's identity holds once the cluster has given it something.
var (
	nonEmptyCA = []*x509.Certificate{{}}
	someSVID   = &tls.Certificate{}
)
