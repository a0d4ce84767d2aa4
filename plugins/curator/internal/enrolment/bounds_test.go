package enrolment_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	"github.com/reeveproject/reeve/plugins/curator/internal/enrolment"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const patience = 2 * time.Minute

// slow is a store whose reads take as long as a test wants. It knows the node that is in it, if any.
type slow struct {
	enrolment.Store
	reading chan struct{} // told of every read that begins
	gate    chan struct{}

	mu   sync.Mutex
	node *clusterv1.NodeRecord
	fail error
}

func (s *slow) ReadRecords(context.Context) (*store.State, error) {
	s.reading <- struct{}{}
	<-s.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	state := &store.State{Cluster: &curatorv1.Cluster{ClusterId: "0123456789abcdef"}, Nodes: make(map[string]*clusterv1.NodeRecord)}
	if s.node != nil {
		state.Nodes[s.node.GetId()] = s.node
	}
	return state, s.fail
}

func (s *slow) ReadNode(ctx context.Context, _ string) (*store.State, error) {
	return s.ReadRecords(ctx)
}

func (s *slow) failing(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// rig is a service over a slow store, at one moment.
type rig struct {
	t       *testing.T
	store   *slow
	service *enrolment.Service
	heard   *event.Value[*cache.Snapshot]
}

func newRig(t *testing.T) *rig {
	now := time.Now()
	r := &rig{t: t, store: &slow{reading: make(chan struct{}, 1000), gate: make(chan struct{})}, heard: new(event.Value[*cache.Snapshot])}
	r.service = enrolment.NewService(enrolment.Config{Store: r.store, Snapshots: r.heard, Now: func() time.Time { return now }})
	return r
}

// calls has the holder of a key call from an address.
func (r *rig) calls(ctx context.Context, key ed25519.PrivateKey, host string, call func(context.Context) error) error {
	const method = "/a/b"
	shown, err := identity.SelfSigned(key, time.Now())
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(shown.Certificate[0])
	if err != nil {
		return err
	}
	guard := auth.NewGuard(auth.GuardConfig{})
	guard.Enforce(auth.Permissions{method: {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_NEWCOMER}}})
	ctx = peer.NewContext(ctx, &peer.Peer{
		Addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 1}, AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}},
	})
	_, err = guard.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) { return nil, call(ctx) })
	return err
}

func (r *rig) join(ctx context.Context, key ed25519.PrivateKey, host string) error {
	return r.calls(ctx, key, host, func(ctx context.Context) error {
		_, err := r.service.Join(ctx, &clusterv1.JoinRequest{})
		return err
	})
}

func (r *rig) commit(ctx context.Context, key ed25519.PrivateKey, host string) error {
	return r.calls(ctx, key, host, func(ctx context.Context) error {
		_, err := r.service.Commit(ctx, &clusterv1.CommitRequest{})
		return err
	})
}

// awaitReads waits until so many more reads have begun.
func (r *rig) awaitReads(n int) {
	r.t.Helper()
	for range n {
		select {
		case <-r.store.reading:
		case <-time.After(patience):
			r.t.Fatal("nothing is read")
		}
	}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func code(err error) codes.Code { return status.Code(answer.Error(err)) }

// However many strangers ask, from however many addresses, the store is read for a few of them at a time; and no node waits behind them.
func TestStrangersTakeTurns(t *testing.T) {
	// In synthetic time, nobody's turn is over before the test has looked.
	synctest.Test(t, func(t *testing.T) {
		const strangers, atOnce = 40, 8
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		results := make(chan error, strangers)
		for n := range strangers {
			ask := []func(context.Context, ed25519.PrivateKey, string) error{r.join, r.commit}[n%2]
			key := newKey(t)
			go func() { results <- ask(ctx, key, fmt.Sprintf("192.0.2.%d", n)) }()
		}
		r.awaitReads(atOnce)
		own := newKey(t)
		known := own.Public().(ed25519.PublicKey)
		r.heard.Set(&cache.Snapshot{State: &store.State{Nodes: map[string]*clusterv1.NodeRecord{
			identity.NodeID(known): {Id: identity.NodeID(known), PublicKey: known, JoinPublicKey: known},
		}}})
		node := make(chan error, 1)
		go func() { node <- r.join(t.Context(), own, "192.0.2.1") }()
		r.awaitReads(1)
		// Those that wait give up; those that read do so until the store answers.
		cancel()
		for range strangers - atOnce {
			select {
			case err := <-results:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("one that waits: %v", err)
				}
			case <-time.After(patience):
				t.Fatalf("more than %d strangers have the store read at once", atOnce)
			}
		}
		close(r.store.gate)
		for range atOnce {
			if err := <-results; code(err) != codes.NotFound {
				t.Errorf("one that read: %v", err)
			}
		}
		if err := <-node; code(err) != codes.NotFound {
			t.Errorf("the node: %v", err)
		}
	})
}

// A call that is under way counts as one that failed, so that nobody has more of them begun than may fail, and counts for nothing once it has not.
func TestAttemptsCountWhileTheyLast(t *testing.T) {
	r := newRig(t)
	const host = "192.0.2.1"
	stranger := newKey(t)
	answers := func(n int) {
		for range n {
			r.store.gate <- struct{}{}
		}
	}
	one := func() error {
		ended := make(chan error, 1)
		go func() { ended <- r.join(t.Context(), stranger, host) }()
		select {
		case <-r.store.reading:
			answers(1)
			return <-ended
		case err := <-ended:
			return err
		}
	}
	const burst = 30
	for range burst - 1 {
		if err := one(); code(err) != codes.NotFound {
			t.Fatal(err)
		}
	}
	// The store's own failures are nobody's.
	r.store.failing(errors.New("away"))
	for range 3 {
		if err := one(); err == nil || code(err) == codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
	r.store.failing(nil)
	last := make(chan error, 1)
	go func() { last <- r.join(t.Context(), stranger, host) }()
	r.awaitReads(1)
	another := make(chan error, 1)
	go func() { another <- r.join(t.Context(), newKey(t), host) }()
	select {
	case err := <-another:
		if code(err) != codes.ResourceExhausted {
			t.Errorf("%v", err)
		}
	case <-r.store.reading:
		t.Error("two calls have begun where one may fail")
		answers(1)
	}
	answers(1)
	if err := <-last; code(err) != codes.NotFound {
		t.Error(err)
	}
	if err := one(); code(err) != codes.ResourceExhausted {
		t.Errorf("after all have failed: %v", err)
	}
}
