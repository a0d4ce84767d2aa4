package target

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/keyfile"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// sessionState is what a Target knows of the session by which its caller proves itself.
type sessionState struct {
	// present is nil if the caller proves a key.
	present *contexts.Session
	// tried is when another certificate was last asked for; zero: never.
	tried time.Time
}

// retryRenewal is when a long command that could not renew its certificate tries again: there is time, half of the certificate's life.
const retryRenewal = time.Minute

// Caller is as whom the cluster API is called: one of the two is set.
type Caller struct {
	// Key is the public half of the key that is proved.
	Key ed25519.PublicKey
	// Session is the one whose certificate is shown.
	Session *contexts.Session
}

// Caller returns as whom the cluster API is called. The fault says what to do if the caller has nothing to prove itself by.
func (t *Target) Caller() (Caller, error) {
	if t.way.keyFile != "" {
		key, err := t.readKey()
		if err != nil {
			return Caller{}, err
		}
		return Caller{Key: key.Public().(ed25519.PublicKey)}, nil
	}
	if err := t.checkSession(); err != nil {
		return Caller{}, err
	}
	return Caller{Session: t.session.present}, nil
}

// Context returns the name of the context by which the cluster was found; empty: it was found otherwise.
func (t *Target) Context() string {
	if t.way.context == nil {
		return ""
	}
	return t.way.context.Name
}

func (t *Target) readKey() (ed25519.PrivateKey, error) {
	return keyfile.Read(t.way.keyFile, "the owner key", "--owner-key")
}

// chooseProof chooses by what the caller proves itself.
func (t *Target) chooseProof() (proof, error) {
	if t.way.keyFile != "" {
		key, err := t.readKey()
		if err != nil {
			return nil, err
		}
		return proveKey(key, t.now), nil
	}
	if err := t.checkSession(); err != nil {
		return nil, err
	}
	return t.proveSession(t.session.present), nil
}

// checkSession reads the session of the context and refuses one that is over: nothing is gained by asking the cluster.
func (t *Target) checkSession() error {
	switch {
	case t.way.keyFile != "":
		return nil
	case t.way.context == nil:
		return fault.New(fault.Refused, "the cluster must know who calls, and the local socket proves only that the caller is on this machine",
			"Give --owner-key FILE, or log in: `reeve login "+t.way.flags()+" --key FILE`.")
	}
	name := t.way.context.Name
	session, err := t.contexts.Session(name)
	if errors.Is(err, contexts.ErrNoSession) {
		return fault.New(fault.Refused, "context "+name+" has no session", "Log in: "+t.loginCommand()+".")
	}
	if err != nil {
		return err
	}
	if domain := identity.TrustDomain(t.way.context.ClusterID()); session.TrustDomain() != domain {
		return fault.New(fault.Refused, "the session of context "+name+" is for another cluster", "Log in again: "+t.loginCommand()+".")
	}
	if now := t.now(); session.Over(now) {
		what := "the session of context " + name + " ended at " + session.Ends.UTC().Format(time.RFC3339)
		if now.Before(session.Ends) {
			what = "the session of context " + name + " was not used for so long that its certificate ended, at " +
				session.CertificateEnds().UTC().Format(time.RFC3339)
		}
		return fault.New(fault.Refused, what, "Log in again: "+t.loginCommand()+".")
	}
	t.session.present = session
	return nil
}

// proveSession shows the certificate of a session, or the newest one of the context: another process, or this one, may have renewed it since.
func (t *Target) proveSession(first *contexts.Session) proof {
	store, name := t.contexts, t.way.context.Name
	return func() (*tls.Certificate, error) {
		newest, err := store.Session(name)
		if err != nil || newest.TrustDomain() != first.TrustDomain() {
			return first.Certificate(), nil
		}
		return newest.Certificate(), nil
	}
}

// renew gets another certificate for the session if the present one is past half of its life. That there is none is no reason to fail: the
// present one is good until it ends.
func (t *Target) renew(ctx context.Context) error {
	now := t.now()
	if t.session.present == nil || !t.session.present.Due(now) || (!t.session.tried.IsZero() && now.Sub(t.session.tried) < retryRenewal) {
		return nil
	}
	t.session.tried = now
	// Somebody may have renewed it already, or logged out.
	newest, err := t.contexts.Session(t.way.context.Name)
	if err != nil {
		return nil
	}
	if err := t.adopt(newest); err != nil {
		return err
	}
	if !newest.Due(now) {
		return nil
	}
	fresh, err := t.renewLocked(ctx)
	if err != nil {
		return ctx.Err()
	}
	return t.adopt(fresh)
}

// renewWithin is how long a renewal may hold up a call, which can go on without it. Tests prolong it.
var renewWithin = probeTimeout

// renewLocked returns the session with another certificate. Only one process asks for it; the others go on with what they have.
func (t *Target) renewLocked(ctx context.Context) (*contexts.Session, error) {
	name := t.way.context.Name
	lock, err := t.contexts.TryLockSession(ctx, name)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	newest, err := t.contexts.Session(name)
	if err != nil || !newest.Due(t.now()) {
		return newest, err
	}
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	fresh, err := t.issue(ctx, t.curators, 0)
	if err != nil {
		return nil, err
	}
	return fresh, lock.Write(fresh)
}

// adopt makes a session of the context, as it is kept now, the one by which the caller proves itself.
func (t *Target) adopt(session *contexts.Session) error {
	if session.Same(t.session.present) {
		return nil
	}
	t.session.present = session
	// A connection has proved the certificate with which it was made. Streams may still run on it.
	t.others = append(t.others, t.curators)
	conn, err := t.dialCurators(t.known.addresses(), t.trust, t.advice())
	t.curators = conn
	return err
}

// ErrRenewal is why a stream ends that would have outlived the certificate of its session: the caller begins it anew, with another certificate. It is
// Unavailable to those who do not ask.
var ErrRenewal error = renewalError{}

type renewalError struct{}

func (renewalError) Error() string { return "the certificate of the session is renewed" }

// GRPCStatus is that of a server that is away for a moment.
func (e renewalError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// patience is how long a stream may last before the certificate has to be renewed; 0: as long as it likes. Servers end the streams of those whose
// certificate ends, who cannot renew it any more then. If it cannot be renewed when it is due it is tried again after half of what is left. One that
// is due in a moment can wait: an answer that is not long is not cut.
func (t *Target) patience() time.Duration {
	if t.session.present == nil {
		return 0
	}
	due, ok := t.session.present.DueAt()
	if !ok {
		return 0
	}
	now := t.now()
	rest := t.session.present.CertificateEnds().Sub(now)
	if left := due.Sub(now); left > 0 {
		return max(left, rest/8)
	}
	return max(rest/2, time.Second)
}

// ofSnapshots are the streams that are files of snapshots.
var ofSnapshots = []string{
	clusterv1.ManagementService_StreamSnapshot_FullMethodName, clusterv1.ManagementService_StreamUnencryptedSnapshot_FullMethodName, clusterv1.ManagementService_GetSnapshot_FullMethodName,
}

// untilRenewal is an interceptor that ends a stream of answers when the certificate of the session has to be renewed. A snapshot goes on until the certificate ends.
func (t *Target) untilRenewal(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption) (grpc.ClientStream, error) {
	patience := t.patience()
	// Streams that the caller sends are short, and not every caller could begin one anew. Nobody begins a snapshot anew.
	if patience == 0 || description.ClientStreams || slices.Contains(ofSnapshots, method) {
		return open(ctx, description, conn, method, options...)
	}
	// No deadline: that the server would be told of, which could end the stream before it is known here why.
	ctx, end := context.WithCancelCause(ctx)
	due := time.AfterFunc(patience, func() { end(ErrRenewal) })
	stopped := func(err error) error {
		due.Stop()
		if errors.Is(context.Cause(ctx), ErrRenewal) {
			err = ErrRenewal
		}
		end(nil)
		return err
	}
	stream, err := open(ctx, description, conn, method, options...)
	if err != nil {
		return nil, stopped(err)
	}
	return &renewedStream{ClientStream: stream, stopped: stopped}, nil
}

// renewedStream is a stream that ends when the certificate of its session has to be renewed.
type renewedStream struct {
	grpc.ClientStream
	// stopped releases the stream's context, and returns ErrRenewal in place of an error that the renewal caused.
	stopped func(error) error
}

// RecvMsg implements grpc.ClientStream.
func (s *renewedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == nil {
		return nil
	}
	return s.stopped(err)
}

// issue asks the cluster for a certificate for a key of its own making.
func (t *Target) issue(ctx context.Context, conn grpc.ClientConnInterface, session time.Duration) (*contexts.Session, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	response, err := clusterv1.NewManagementServiceClient(conn).Login(ctx, &clusterv1.LoginRequest{
		PublicKey: public, SessionSeconds: uint32(session / time.Second),
	})
	if err != nil {
		return nil, err
	}
	var chain []*x509.Certificate
	for _, der := range response.GetCertificate() {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		chain = append(chain, certificate)
	}
	if len(chain) == 0 {
		return nil, fault.New(fault.Failed, "the cluster issued no certificate", "")
	}
	// The curator has proved itself, and its clock is the one that counts: this one may be behind.
	now := t.now()
	at := now
	if begins := chain[0].NotBefore; at.Before(begins) {
		at = begins
	}
	if at.After(chain[0].NotAfter) {
		return nil, fault.New(fault.Failed, "the certificate that the cluster just issued ended at "+chain[0].NotAfter.UTC().Format(time.RFC3339)+
			" by the clock of this machine", "Check the clock of this machine.")
	}
	if _, err := identity.VerifySession(chain, t.trust.roots, t.trust.domain, at); err != nil {
		return nil, fault.Wrap(fault.Failed, err, "the certificate that the cluster issued cannot be used", "")
	}
	return contexts.NewSession(key, chain, roleName(response.GetRole()), now)
}

// roleName is an operator's role as people write it.
func roleName(role clusterv1.OperatorRole) string {
	return strings.ToLower(strings.TrimPrefix(role.String(), "OPERATOR_ROLE_"))
}
