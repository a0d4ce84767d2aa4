package ca

import (
	"context"
	"crypto/tls"
	"sync"
	"time"
)

// Serving is the certificate with which this curator serves. It is renewed in place, by the first handshake after half of its life, so that
// no handshake shows one near its end and no timer depends on the machine's clock staying as it is.
type Serving struct {
	keys   Keys
	nodeID string
	role   string
	now    func() time.Time

	renewing sync.Mutex // held by whoever renews

	mu      sync.Mutex // guards what follows
	current *tls.Certificate
	renewAt time.Time
}

// NewServing returns the serving certificate of a role on a node, issued by the authority that keys holds at the time. It fails if the
// first one cannot be issued.
func NewServing(ctx context.Context, keys Keys, nodeID, role string, now func() time.Time) (*Serving, error) {
	s := &Serving{keys: keys, nodeID: nodeID, role: role, now: now}
	if err := s.renew(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// GetCertificate is for tls.Config. Where a renewal fails, the present certificate serves for as long as it is valid, and every handshake
// tries again.
func (s *Serving) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := s.now()
	current, renewAt := s.get()
	if now.Before(renewAt) {
		return current, nil
	}
	if now.Before(current.Leaf.NotAfter) {
		// One handshake renews; the others need not wait for it.
		if s.renewing.TryLock() {
			defer s.renewing.Unlock()
			_ = s.renew(hello.Context())
		}
		current, _ = s.get()
		return current, nil
	}
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if current, renewAt = s.get(); now.Before(renewAt) {
		return current, nil
	}
	if err := s.renew(hello.Context()); err != nil {
		return nil, err
	}
	current, _ = s.get()
	return current, nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.renewAt = certificate, now.Add(certificate.Leaf.NotAfter.Sub(now)/2)
	return nil
}
