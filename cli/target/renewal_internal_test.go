package target

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/cli/contexts"
	"github.com/reeveproject/reeve/proto/identity"
)

// TestRenewalWhileOpening holds that a stream which is still being opened when the certificate has to be renewed ends with ErrRenewal, and not as if the caller had cancelled it.
func TestRenewalWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &Target{now: time.Now}
		cluster.session.present = newSession(t, time.Hour)
		blocked := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		watch := &grpc.StreamDesc{ServerStreams: true}
		if _, err := cluster.untilRenewal(t.Context(), watch, nil, "", blocked); !errors.Is(err, ErrRenewal) {
			t.Errorf("at the renewal: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if _, err := cluster.untilRenewal(ctx, watch, nil, "", blocked); status.Code(err) != codes.Canceled {
			t.Errorf("cancelled by the caller: %v", err)
		}
	})
}

// TestSnapshotsOutliveTheRenewal holds that a snapshot, which nobody begins anew, is not ended when the certificate has to be renewed.
func TestSnapshotsOutliveTheRenewal(t *testing.T) {
	for _, method := range ofSnapshots {
		synctest.Test(t, func(t *testing.T) {
			cluster := &Target{now: time.Now}
			cluster.session.present = newSession(t, time.Hour)
			long := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Hour):
				}
				return nil, ctx.Err()
			}
			if _, err := cluster.untilRenewal(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nil, method, long); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		})
	}
}

// newSession returns a session of a day with a certificate that lasts a while.
func newSession(t *testing.T, lifetime time.Duration) *contexts.Session {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	session := identity.Session{Operator: "alice", ID: "0123456789abcdef", Ends: time.Now().Add(24 * time.Hour)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(lifetime), URIs: []*url.URL{identity.SessionURI("cluster.example", session)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	made, err := contexts.NewSession(key, []*x509.Certificate{certificate}, "operator", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return made
}
