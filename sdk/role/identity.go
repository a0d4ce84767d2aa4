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
	// issueTime is how long one attempt to be given an SVID may take.
	issueTime = 20 * time.Second
	// firstRetry is the wait after the first attempt that failed; every further one is twice as long, up to maxRetry. While there is no SVID that is good
	// somebody may be waiting for it, and the wait ends at maxRetryWithout.
	firstRetry      = 200 * time.Millisecond
	maxRetryWithout = 5 * time.Second
	maxRetry        = 30 * time.Second
	// lookAgain bounds how long nobody looks at the clock: a machine may have slept, or its clock been set.
	lookAgain = time.Minute
	// resignWithin is the time over which the instances of a cluster ask for SVIDs of a new CA.
	resignWithin = 10 * time.Second
)

// ErrNoIdentity says that the instance has no SVID that is good, and that the wait for one ended: the node is no member yet, or no curator can be reached and
// the last SVID has expired. It is asked for on.
var ErrNoIdentity = errors.New("the instance has no SVID")

// prover keeps what the instance proves itself with, its key and SVID, and by what it knows others. Nothing of it begins before it is first used.
type prover struct {
	host  *Host
	once  sync.Once
	trust event.Value[*trust]
	svid  event.Value[*svid]

	mu      sync.Mutex
	problem error // why the last attempt to get an SVID failed; nil: it did not, or there was none
}

// svid is a key and the certificate for it.
type svid struct {
	certificate *tls.Certificate
	// renew is when another one is asked for, by the wall clock. Only run looks at it.
	renew time.Time
}

func (s *svid) good(now time.Time) bool {
	return s != nil && !now.Before(s.certificate.Leaf.NotBefore) && now.Before(s.certificate.Leaf.NotAfter)
}

// begin has the trust followed and the SVID kept new, for as long as the host is there.
func (p *prover) begin(host *Host) {
	p.once.Do(func() {
		p.host = host
		follow(host, "trust", func(ctx context.Context) (grpc.ServerStreamingClient[hostv1.WatchTrustResponse], error) {
			return host.client.WatchTrust(ctx, &hostv1.WatchTrustRequest{})
		}, func(response *hostv1.WatchTrustResponse) {
			trust, err := trustOf(response)
			if err != nil {
				host.log.Error("the core told certificates of the cluster CA that cannot be used; the former ones stay", "error", err)
				return
			}
			p.trust.Set(trust)
		})
		host.background(p.run)
	})
}

// present returns an SVID that is good, and by whom others are known. It waits for them as long as ctx lets it.
func (p *prover) present(ctx context.Context) (*tls.Certificate, *trust, error) {
	// Both waits end with the host too: nothing comes after it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.host.ctx, cancel)()
	trust, err := p.trust.Wait(ctx, func(*trust) bool { return true })
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the node has not told the certificates of the cluster CA, which it has when it is a member: %w", ErrNoIdentity, err)
	}
	svid, err := p.svid.Wait(ctx, func(now *svid) bool { return now.good(time.Now()) })
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.problem != nil {
			return nil, nil, fmt.Errorf("%w: %w (%w)", ErrNoIdentity, p.problem, err)
		}
		return nil, nil, fmt.Errorf("%w: it was asked for, and is not there yet: %w", ErrNoIdentity, err)
	}
	return svid.certificate, trust, nil
}

// run gets a new SVID whenever it is time.
func (p *prover) run() {
	ctx := p.host.ctx
	trusts := p.trust.Watch()
	if _, err := trusts.Next(ctx); err != nil {
		return
	}
	retry := firstRetry
	for ctx.Err() == nil {
		now := time.Now()
		// The newest: an SVID may have come from a CA that became known while it was issued.
		trust, _ := trusts.Latest()
		current, ok := p.svid.Get()
		if ok {
			current.resign(trust, now)
		}
		wait := lookAgain
		if until := untilRenewal(current, trust, now); until > 0 {
			wait = min(wait, until)
		} else if err := p.renew(ctx, trust); err == nil {
			// One whose CA is not known here yet is as good as none until it is: another one is not asked for again and again meanwhile.
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

// untilRenewal is how long an SVID is still good enough. One that the cluster's CA certificates do not speak for any more is not.
func untilRenewal(current *svid, trust *trust, now time.Time) time.Duration {
	if !current.good(now) {
		return 0
	}
	if _, err := trust.verify([]*x509.Certificate{current.certificate.Leaf}, x509.ExtKeyUsageClientAuth, now); err != nil {
		return 0
	}
	return current.renew.Sub(now)
}

// resign has an SVID replaced soon that another CA has signed than the one that signs now: the former one is retired when nobody has a certificate of it any more. Not
// all instances of a cluster ask in the same moment.
func (s *svid) resign(trust *trust, now time.Time) {
	if s.certificate.Leaf.CheckSignatureFrom(trust.signs) == nil {
		return
	}
	if soon := now.Round(0).Add(mathrand.N(resignWithin)); soon.Before(s.renew) {
		s.renew = soon
	}
}

// failed notes and tells why there is no new SVID.
func (p *prover) failed(err error, current *svid, retry time.Duration) {
	p.mu.Lock()
	known := p.problem != nil && p.problem.Error() == err.Error()
	p.problem = err
	p.mu.Unlock()
	if known {
		return // it was told
	}
	if current.good(time.Now()) {
		p.host.log.Warn("no new SVID for the role yet; the present one is used on", "error", err, "good until", current.certificate.Leaf.NotAfter, "again in", retry)
		return
	}
	p.host.log.Warn("no SVID for the role yet: other roles cannot be reached by it, nor reach it", "error", err, "again in", retry)
}

// renew makes a key, has it certified and uses it from now on. Connections that were made by the former SVID stay.
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
		return fmt.Errorf("the core issued none: %s: %s", status.Code(err), status.Convert(err).Message())
	}
	now := time.Now()
	made, err := checkSVID(response.GetSvid(), key, identity.RoleURI(trust.domain, p.host.NodeID(), p.host.Role()).String(), now)
	if err != nil {
		return fmt.Errorf("the one that was issued cannot be used: %w", err)
	}
	p.mu.Lock()
	p.problem = nil
	p.mu.Unlock()
	p.svid.Set(made)
	p.host.log.Debug("new SVID", "expires", made.certificate.Leaf.NotAfter)
	return nil
}

// checkSVID makes an SVID of what was issued for a key, and refuses what nobody would take it for.
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
		return nil, fmt.Errorf("it is good from %s to %s, and this node's clock says %s: compare the clocks",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	// What is left counts, not what it says: certificates begin in the past, since clocks differ. A random moment between half and two thirds
	// keeps the instances of a cluster that was started at once from asking at once for ever.
	left := leaf.NotAfter.Sub(now)
	renew := now.Round(0).Add(left/2 + mathrand.N(left/6+1))
	return &svid{certificate: &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, renew: renew}, nil
}
