package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reeveproject/reeve/core/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// lookAgain bounds how long renew waits without looking at the clock: a machine may have slept, or its clock been set.
	lookAgain = time.Minute
	// maxRenewPause is longer than the other workers': half of an SVID's life is left to try in, and each attempt may cost the curator a
	// signature.
	maxRenewPause = 30 * time.Second
)

// renew gets a new SVID whenever the present one is missing or past half of its life: there are then as many hours left to try again as the
// node has used it.
func (s *session) renew(ctx context.Context, made func()) error {
	identities, sets := s.config.Identity.Watch(), s.config.ClockSet.Watch()
	for ctx.Err() == nil {
		node, _ := identities.Latest()
		_, _ = sets.Latest()
		wait := s.untilRenewal(node)
		if wait <= 0 {
			if err := s.awaitStore(ctx); err != nil {
				return err
			}
			if err := s.issue(ctx, node); err != nil {
				return err
			}
			made()
			continue
		}
		select {
		case <-ctx.Done():
		case <-identities.Changed():
		case <-sets.Changed():
		case <-time.After(min(wait, lookAgain)):
		}
	}
	return ctx.Err()
}

// untilRenewal is how long the newest SVID is still good enough: the identity's, or the one that was issued and that the identity has not
// taken yet.
func (s *session) untilRenewal(node *identity.Identity) time.Duration {
	newest := svidLeaf(node.SVID)
	if s.issued != nil && (newest == nil || s.issued.NotAfter.After(newest.NotAfter) || s.config.Now().Before(newest.NotBefore)) {
		newest = s.issued
	}
	// One that begins later than now was issued while the clock was ahead: nobody would take it.
	if newest == nil || s.config.Now().Before(newest.NotBefore) {
		return 0
	}
	half := newest.NotBefore.Add(newest.NotAfter.Sub(newest.NotBefore) / 2)
	wait := half.Sub(s.config.Now())
	// The CA that signs is the first one. What another one has signed is worth nothing once that is retired, which waits for every node.
	if len(node.CA) == 0 || newest.CheckSignatureFrom(node.CA[0]) == nil {
		s.resign = time.Time{}
		return wait
	}
	if s.resign.IsZero() {
		s.resign = s.config.Now().Add(rand.N(resignWithin))
	}
	return min(wait, s.resign.Sub(s.config.Now()))
}

// resignWithin is the time over which the nodes of a cluster ask for SVIDs of a new CA: not all in the same moment.
const resignWithin = 10 * time.Second

// issue gets an SVID and publishes it.
func (s *session) issue(ctx context.Context, node *identity.Identity) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := s.api.IssueSVID(call, &clusterv1.IssueSVIDRequest{})
	if err != nil {
		return err
	}
	if err := s.checkStore(); err != nil {
		return err // the watch has said meanwhile whose SVID that is
	}
	leaf, err := s.checkSVID(response, node)
	if err != nil {
		return fmt.Errorf("the curator issued an SVID that the node cannot use: %w", err)
	}
	s.issued, s.resign = leaf, time.Time{}
	// Whom the node trusts is up to a store that it follows, which only a watch tells. Before there is one, the CA that the node has is good enough: the curator has just proved itself by it.
	watched, _ := s.streams.Get()
	s.credentials.Update(func(credentials identity.Credentials) identity.Credentials {
		credentials.SVID = response.GetSvid()
		if watched > 0 && len(response.GetCaCertificates()) > 0 {
			credentials.CA = response.GetCaCertificates()
		}
		return credentials
	})
	return nil
}

// checkSVID refuses what would lock the node out, or make it ask again at once, if it were taken.
func (s *session) checkSVID(response *clusterv1.IssueSVIDResponse, node *identity.Identity) (*x509.Certificate, error) {
	if len(response.GetSvid()) == 0 {
		return nil, errors.New("it is empty")
	}
	var chain []*x509.Certificate
	for _, der := range response.GetSvid() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		chain = append(chain, certificate)
	}
	key, ok := chain[0].PublicKey.(ed25519.PublicKey)
	if !ok || !key.Equal(node.Key.Public()) {
		return nil, errors.New("it is for another key than the node's")
	}
	if s.config.Now().Before(chain[0].NotBefore) {
		return nil, fmt.Errorf("it is valid from %s only, and this node's clock says %s: compare the clocks",
			chain[0].NotBefore.UTC().Format(time.RFC3339), s.config.Now().UTC().Format(time.RFC3339))
	}
	if remaining := chain[0].NotAfter.Sub(s.config.Now()); remaining <= chain[0].NotAfter.Sub(chain[0].NotBefore)/2 {
		return nil, fmt.Errorf("it is valid from %s to %s, of which half is over by this node's clock: compare the clocks",
			chain[0].NotBefore.UTC().Format(time.RFC3339), chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
	for _, der := range response.GetCaCertificates() {
		if _, err := x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("a CA certificate with it is damaged: %w", err)
		}
	}
	return chain[0], nil
}
