package ca

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"
)

// Serving is the certificate with which this curator serves. It is renewed in place, by the first handshake after half of its life, so that
// no handshake shows one near its end and no timer depends on the machine's clock staying as it is. A clock that was set back to before its life has
// it renewed too: nobody would take one of to-morrow.
type Serving struct {
	keys   Keys
	nodeID string
	role   string
	now    func() time.Time
	issued func(ctx context.Context, certificate []byte, lifetime time.Duration)

	renewing sync.Mutex // held by whoever renews

	mu      sync.Mutex // guards what follows
	current *tls.Certificate
	renewAt time.Time
	signer  []byte // the certificate of the authority that has signed current, DER
}

// NewServing returns the serving certificate of a role on a node, issued by the authority that keys holds at the time. It fails if the
// first one cannot be issued, unless only the clock is in the way: a curator that ended of a wrong clock would not be there when the time is right. The
// handshakes fail until then. issued, if it is not nil, is told of every certificate before it serves.
func NewServing(
	ctx context.Context, keys Keys, nodeID, role string, now func() time.Time, issued func(ctx context.Context, certificate []byte, lifetime time.Duration),
) (*Serving, error) {
	s := &Serving{keys: keys, nodeID: nodeID, role: role, now: now, issued: issued}
	var clock *ClockError
	if err := s.renew(ctx); err != nil && !errors.As(err, &clock) {
		return nil, err
	}
	return s, nil
}

// GetCertificate is for tls.Config. Where a renewal fails, the present certificate serves for as long as it is valid, and every handshake
// tries again.
func (s *Serving) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := s.now()
	current, renewAt := s.get()
	if !valid(current, now) {
		return s.another(hello.Context())
	}
	// One handshake renews; the others need not wait for it.
	if !now.Before(renewAt) && s.renewing.TryLock() {
		defer s.renewing.Unlock()
		_ = s.renew(hello.Context())
		current, _ = s.get()
	}
	return current, nil
}

// Follow has the certificate be one that an authority has signed, given by its own certificate (DER). It reports whether it was another one's.
func (s *Serving) Follow(ctx context.Context, signing []byte) (changed bool, err error) {
	signed := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return bytes.Equal(s.signer, signing)
	}
	if signed() {
		return false, nil
	}
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if signed() { // a handshake was first
		return true, nil
	}
	if err := s.renew(ctx); err != nil {
		return false, err
	}
	return signed(), nil
}

// another returns a certificate in the place of one that is of no use.
func (s *Serving) another(ctx context.Context) (*tls.Certificate, error) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if current, _ := s.get(); valid(current, s.now()) { // somebody else was first
		return current, nil
	}
	if err := s.renew(ctx); err != nil {
		return nil, err
	}
	current, _ := s.get()
	return current, nil
}

// valid says whether a certificate is of any use at a time; nil is none.
func valid(certificate *tls.Certificate, now time.Time) bool {
	return certificate != nil && !now.Before(certificate.Leaf.NotBefore) && now.Before(certificate.Leaf.NotAfter)
}

func (s *Serving) get() (*tls.Certificate, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.renewAt
}

func (s *Serving) renew(ctx context.Context) error {
	authority, err := Load(ctx, s.keys)
	if err != nil {
		return err
	}
	now := s.now()
	certificate, err := authority.IssueCurator(s.nodeID, s.role, now)
	if err != nil {
		return err
	}
	if s.issued != nil {
		s.issued(ctx, certificate.Certificate[0], certificate.Leaf.NotAfter.Sub(now))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signer = authority.Certificate()
	s.current, s.renewAt = certificate, now.Add(certificate.Leaf.NotAfter.Sub(now)/2)
	return nil
}
