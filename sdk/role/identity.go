package role

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/event"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

const (
	// issueTime is the timeout of one request for an SVID.
	issueTime = 20 * time.Second
	// firstRetry is the pause after the first failed request. It doubles up to maxRetry, or up to maxRetryWithout while there is no valid SVID and
	// somebody may be waiting for one.
	firstRetry      = 200 * time.Millisecond
	maxRetryWithout = 5 * time.Second
	maxRetry        = 30 * time.Second
	// lookAgain is the longest time between two looks at the clock: the machine may have slept, or its clock been set.
	lookAgain = time.Minute
	// resignWithin is the time over which a cluster's instances request SVIDs of a new CA.
	resignWithin = 10 * time.Second
)

// ErrNoIdentity says that the instance has no valid SVID and that the wait for one ended: the node is not a member yet, or no curator is reachable
// and the last SVID has expired. The SDK keeps requesting one.
var ErrNoIdentity = errors.New("the instance has no SVID")

// prover keeps the instance's key and SVID, and the trust for verifying others. It does nothing before its first use.
type prover struct {
	host  *Host
	once  sync.Once
	trust event.Value[*trust]
	svid  event.Value[*svid]

	mu      sync.Mutex
	problem error // why the last request for an SVID failed; nil if it did not
}

// svid is a certificate with its key.
type svid struct {
	certificate *tls.Certificate
	// renew is when to request another one, by the wall clock. Only run uses it.
	renew time.Time
}

func (s *svid) good(now time.Time) bool {
	return s != nil && !now.Before(s.certificate.Leaf.NotBefore) && now.Before(s.certificate.Leaf.NotAfter)
}

// begin starts to follow the trust and to renew the SVID, until the host is closed.
func (p *prover) begin(host *Host) {
	p.once.Do(func() {
		p.host = host
		follow(host, "trust", func(ctx context.Context) (grpc.ServerStreamingClient[hostv1.WatchTrustResponse], error) {
			return host.client.WatchTrust(ctx, &hostv1.WatchTrustRequest{})
		}, func(response *hostv1.WatchTrustResponse) {
			trust, err := trustOf(response)
			if err != nil {
				host.log.Error("the core sent invalid certificates of the cluster CA; keeping the former ones", "error", err)
				return
			}
			p.trust.Set(trust)
		})
		host.background(p.run)
	})
}

// present returns a valid SVID and the trust for verifying others. It waits for them until ctx ends.
func (p *prover) present(ctx context.Context) (*tls.Certificate, *trust, error) {
	// Both waits also end with the host.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.host.ctx, cancel)()
	trust, err := p.trust.Wait(ctx, func(*trust) bool { return true })
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the node has no certificates of the cluster CA yet, because it is not a member: %w", ErrNoIdentity, err)
	}
	svid, err := p.svid.Wait(ctx, func(now *svid) bool { return now.good(time.Now()) })
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.problem != nil {
			return nil, nil, fmt.Errorf("%w: %w (%w)", ErrNoIdentity, p.problem, err)
		}
		return nil, nil, fmt.Errorf("%w: it was requested but not issued yet: %w", ErrNoIdentity, err)
	}
	return svid.certificate, trust, nil
}

// run requests a new SVID when it is time.
func (p *prover) run() {
	ctx := p.host.ctx
	trusts := p.trust.Watch()
	if _, err := trusts.Next(ctx); err != nil {
		return
	}
	retry := firstRetry
	for ctx.Err() == nil {
		now := time.Now()
		// Latest: the SVID's CA may have become known while it was issued.
		trust, _ := trusts.Latest()
		current, ok := p.svid.Get()
		if ok {
			current.resign(trust, now)
		}
		wait := lookAgain
		if until := untilRenewal(current, trust, now); until > 0 {
			wait = min(wait, until)
		} else if err := p.renew(ctx, trust); err == nil {
			// An SVID whose CA is not known here yet counts as none. Do not request another one in a loop meanwhile.
			made, _ := p.svid.Get()
			if trust, _ = trusts.Latest(); untilRenewal(made, trust, time.Now()) > 0 {
				retry = firstRetry
				continue
			}
			wait, retry = retry, min(2*retry, maxRetryWithout)
		} else if ctx.Err() == nil {
			bound := maxRetry
			if !current.good(now) {
				bound = maxRetryWithout
			}
			retry = min(retry, bound)
			p.failed(err, current, retry)
			wait = retry/2 + mathrand.N(retry/2)
			retry *= 2
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-trusts.Changed():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// untilRenewal returns how long an SVID stays good enough: 0 if the cluster's CA certificates do not verify it any more.
func untilRenewal(current *svid, trust *trust, now time.Time) time.Duration {
	if !current.good(now) {
		return 0
	}
	if _, err := trust.verify([]*x509.Certificate{current.certificate.Leaf}, x509.ExtKeyUsageClientAuth, now); err != nil {
		return 0
	}
	return current.renew.Sub(now)
}

// resign brings the renewal forward if another CA than the signing one issued the SVID: the old CA is retired when no certificate of it is in use. A
// random delay spreads the cluster's instances.
func (s *svid) resign(trust *trust, now time.Time) {
	if s.certificate.Leaf.CheckSignatureFrom(trust.signs) == nil {
		return
	}
	if soon := now.Round(0).Add(mathrand.N(resignWithin)); soon.Before(s.renew) {
		s.renew = soon
	}
}

// failed records and logs why there is no new SVID.
func (p *prover) failed(err error, current *svid, retry time.Duration) {
	p.mu.Lock()
	known := p.problem != nil && p.problem.Error() == err.Error()
	p.problem = err
	p.mu.Unlock()
	if known {
		return // it was logged
	}
	if current.good(time.Now()) {
		p.host.log.Warn("cannot renew the role's SVID; keeping the present one", "error", err, "good until", current.certificate.Leaf.NotAfter, "again in", retry)
		return
	}
	p.host.log.Warn("the role has no SVID yet and cannot connect with other roles", "error", err, "again in", retry)
}

// renew makes a key, requests an SVID for it and uses it from now on. Existing connections stay.
func (p *prover) renew(ctx context.Context, trust *trust) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return fmt.Errorf("make a certificate request: %w", err)
	}
	call, cancel := context.WithTimeout(ctx, issueTime)
	defer cancel()
	response, err := p.host.client.IssueSVID(call, &hostv1.IssueSVIDRequest{CertificateRequest: request})
	if err != nil {
		return fmt.Errorf("the core did not issue one: %s: %s", status.Code(err), status.Convert(err).Message())
	}
	now := time.Now()
	made, err := checkSVID(response.GetSvid(), key, identity.RoleURI(trust.domain, p.host.NodeID(), p.host.Role()).String(), now)
	if err != nil {
		return fmt.Errorf("the issued one is invalid: %w", err)
	}
	p.mu.Lock()
	p.problem = nil
	p.mu.Unlock()
	p.svid.Set(made)
	p.host.log.Debug("new SVID", "expires", made.certificate.Leaf.NotAfter)
	return nil
}

// checkSVID checks what was issued for a key, and returns the SVID.
func checkSVID(chain [][]byte, key *ecdsa.PrivateKey, id string, now time.Time) (*svid, error) {
	if len(chain) == 0 {
		return nil, errors.New("it is empty")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, err
	}
	if public, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("it is for another key than the instance's")
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != id {
		return nil, fmt.Errorf("it is for %v, not for %s", leaf.URIs, id)
	}
	if now.Before(leaf.NotBefore) || !now.Before(leaf.NotAfter) {
		return nil, fmt.Errorf("it is valid from %s to %s, but this node's clock says %s: compare the clocks",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	// The rest of the lifetime counts, because certificates begin in the past to allow for clock differences. A random moment between one half and
	// two thirds keeps instances that started together from renewing together.
	left := leaf.NotAfter.Sub(now)
	renew := now.Round(0).Add(left/2 + mathrand.N(left/6+1))
	return &svid{certificate: &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, renew: renew}, nil
}
