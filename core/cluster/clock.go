package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/reeveproject/reeve/core/identity"
)

// clockMoved is by how much the clock must have been set since it was told, to be told anew.
const clockMoved = 10 * time.Minute

// period is the time for which somebody's certificate is valid.
type period struct {
	whose     string
	from, end time.Time
}

func periodOf(whose string, certificate *x509.Certificate) period {
	return period{whose: whose, from: certificate.NotBefore, end: certificate.NotAfter}
}

// clock is how this machine's clock and the certificates disagree. The zero value: they do not, as far as is known.
type clock struct {
	// says is what the clock said when this was found, and found is when that was by the clock of timers, which nobody sets.
	says, found time.Time
	at          period
}

func (c clock) wrong() bool { return !c.says.IsZero() }

// compare finds out whether the clock and a period disagree.
func compare(now time.Time, p period) clock {
	if now.Before(p.from) || now.After(p.end) {
		return clock{says: now.Round(0), found: time.Now(), at: p}
	}
	return clock{}
}

func (c clock) String() string {
	how := fmt.Sprintf("before %s is valid (from %s", c.at.whose, stamp(c.at.from))
	if c.says.After(c.at.end) {
		how = fmt.Sprintf("after %s ended (valid until %s", c.at.whose, stamp(c.at.end))
	}
	return fmt.Sprintf("this machine's clock says %s, which is %s): compare it with the time and set it right, on the machine that is wrong; the node then goes on by itself",
		stamp(c.says), how)
}

// same says whether there is nothing new in another finding.
func (c clock) same(other clock) bool {
	set := c.says.Sub(other.says) - c.found.Sub(other.found)
	return c.wrong() == other.wrong() && c.at == other.at && set.Abs() < clockMoved
}

// ownClock compares the clock with the certificates that the node itself has. Those of the cluster's CA are older than everything else and
// outlive it. The SVID was valid when the cluster issued it, so that a clock before it has gone back; that it ended says nothing, since the node may have been off.
func ownClock(now time.Time, node *identity.Identity) clock {
	if node == nil {
		return clock{}
	}
	var ca clock
	for i, certificate := range node.CA {
		found := compare(now, periodOf("the certificate of the cluster's CA", certificate))
		if !found.wrong() {
			ca = clock{}
			break // one of them is enough to tell the cluster by
		}
		if i == 0 || found.at.end.After(ca.at.end) {
			ca = found
		}
	}
	if ca.wrong() {
		return ca
	}
	if leaf := svidLeaf(node.SVID); leaf != nil && now.Before(leaf.NotBefore) {
		return compare(now, periodOf("the node's own SVID", leaf))
	}
	return clock{}
}

// clockNow is what is known to be wrong with the clock: by the node's own certificates, and by what the curator last showed.
func (c *Client) clockNow(node *identity.Identity, shown period) clock {
	now := c.config.Now()
	found := ownClock(now, node)
	if !found.wrong() && shown.whose != "" {
		found = compare(now, shown)
	}
	return found
}

// handshakes are transport credentials that tell what certificate the other side showed where it was refused, which gRPC's error says only in words.
type handshakes struct {
	credentials.TransportCredentials
	ended func(refused *x509.Certificate)
	// explain says more of why certificates are refused, leaf first.
	explain func(err error, shown []*x509.Certificate) error
}

// ClientHandshake is that of the credentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, conn)
	var refused *tls.CertificateVerificationError
	switch {
	case err == nil:
		h.ended(nil)
	case errors.As(err, &refused) && len(refused.UnverifiedCertificates) > 0:
		h.ended(refused.UnverifiedCertificates[0])
		err = h.explain(err, refused.UnverifiedCertificates)
	}
	return secured, info, err
}

// Clone is that of the credentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{TransportCredentials: h.TransportCredentials.Clone(), ended: h.ended, explain: h.explain}
}

// refusedCurator keeps how long the certificate is valid that a curator showed and that was refused; nil: the last one was accepted.
func (c *Client) refusedCurator(to target, certificate *x509.Certificate) {
	var shown period
	if certificate != nil {
		shown = periodOf(fmt.Sprintf("the certificate of %s at %s", to.instance, to.address), certificate)
	}
	if before, _ := c.shown.Get(); before != shown {
		c.shown.Set(shown)
	}
}
