package enrol_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/inorder"
	"github.com/reeveproject/reeve/core/spread"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// client is a client of the curators for the CA.
func client(t *testing.T, ca *authority, key ed25519.PrivateKey, curators ...*curator) *enrol.Client {
	t.Helper()
	var addresses []string
	for _, c := range curators {
		addresses = append(addresses, c.address)
	}
	return enrol.Patient(enrol.New(enrol.Config{
		ClusterID: clusterID, NodeID: nodeID(key), Key: key, Pins: [][]byte{ca.pin()}, Curators: func() []string { return addresses },
	}))
}

func TestTheCallsProveTheKeyAndBringTheAnswer(t *testing.T) {
	ca, key, join := newAuthority(t), newKey(t), newKey(t)
	c := serve(t, ca.curator())
	e := client(t, ca, key, c)
	registered, err := e.Register(t.Context(), &clusterv1.RegisterRequest{TicketId: "t1"})
	if err != nil || registered.GetNode().GetId() != nodeID(key) {
		t.Fatalf("Register: %v, %v", registered, err)
	}
	c.states <- clusterv1.NodeState_NODE_STATE_NEW
	c.states <- clusterv1.NodeState_NODE_STATE_STANDBY
	var states []clusterv1.NodeState
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = e.Await(ctx, func(r *clusterv1.AwaitResponse) {
		if states = append(states, r.GetState()); len(states) == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(states) != 2 || states[1] != clusterv1.NodeState_NODE_STATE_STANDBY {
		t.Errorf("Await: %v, %v", states, err)
	}
	if committed, err := e.Commit(t.Context(), &clusterv1.CommitRequest{Cuk: []byte("half")}); err != nil || committed.GetNode().GetId() != nodeID(key) {
		t.Errorf("Commit: %v, %v", committed, err)
	}
	if joined, err := client(t, ca, join, c).Join(t.Context(), &clusterv1.JoinRequest{}); err != nil || string(joined.GetCuk()) != "half" {
		t.Errorf("Join: %v, %v", joined, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, want := range []ed25519.PrivateKey{key, key, key, join} {
		if got, err := names.PinnedKey(c.callers[i]); err != nil || !got.Equal(want.Public()) {
			t.Errorf("call %d came with another key: %v", i, err)
		}
	}
}

func TestOnlyCuratorsOfTheClusterAreCalled(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	hours := func(n int) time.Time { return time.Now().Add(time.Duration(n) * time.Hour) }
	for name, test := range inorder.Of(map[string]struct {
		certificate *tls.Certificate
		says        string
		pin         bool
	}{
		"another CA":                      {other.curator(), "shows " + "[" + hex.EncodeToString(other.pin()), true},
		"no root in the chain":            {without(ca.curator()), "shows none", true},
		"a foreign leaf beside the root":  {beside(other.curator(), ca.certificate), "not a curator's of the cluster", false},
		"an expired leaf":                 {ca.issue(names.CuratorName(trustDomain), hours(-3), hours(-1), x509.ExtKeyUsageServerAuth), "compare the clocks", false},
		"a leaf of tomorrow":              {ca.issue(names.CuratorName(trustDomain), hours(20), hours(24), x509.ExtKeyUsageServerAuth), "compare the clocks", false},
		"the name of another cluster":     {ca.issue("curator.other.reeve", hours(-1), hours(1), x509.ExtKeyUsageServerAuth), "curator.other.reeve", false},
		"a leaf that serves nobody":       {ca.issue(names.CuratorName(trustDomain), hours(-1), hours(1), x509.ExtKeyUsageClientAuth), "incompatible key usage", false},
		"a node's certificate of the CA":  {ca.issue("", hours(-1), hours(1), x509.ExtKeyUsageServerAuth), "not valid for any names", false},
		"the root itself as the curator":  {ca.itself(), "shows none", true},
		"a key that was pinned, not a CA": {ca.noCA(), "shows none", true},
	}) {
		t.Run(name, func(t *testing.T) {
			c := serve(t, test.certificate)
			key := newKey(t)
			_, err := client(t, ca, key, c).Register(t.Context(), &clusterv1.RegisterRequest{TicketSecret: []byte("hidden")})
			var pin *enrol.PinError
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), c.address) || errors.As(err, &pin) != test.pin {
				t.Errorf("the error is %v", err)
			}
			if test.pin && (!strings.Contains(err.Error(), "reeve ticket create") || !strings.Contains(err.Error(), hex.EncodeToString(ca.pin()))) {
				t.Errorf("the error does not help: %v", err)
			}
			if since := test.certificate != nil && pin != nil && !pin.Since.IsZero(); since != (name == "another CA") || since && (!strings.Contains(err.Error(), "has a new CA since "+pin.Since.UTC().Format(time.RFC3339)) || !pin.Since.Equal(other.certificate.NotBefore.Add(names.ClockSkew))) {
				t.Errorf("whether the cluster has a new CA: %v", err)
			}
			if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), hex.EncodeToString([]byte("hidden"))) {
				t.Errorf("the error holds the secret: %v", err)
			}
			if c.called() != 0 {
				t.Error("it was called")
			}
		})
	}
}

// A machine that is no member yet needs another ticket, and a member that is locked has to come anew.
func TestTheWayBackAfterARotation(t *testing.T) {
	ca, key := newAuthority(t), newKey(t)
	c := serve(t, newAuthority(t).curator())
	for call, says := range map[string]string{"Register": "put it in the place of the old one", "Commit": "put it in the place of the old one", "Join": "reeve node delete " + nodeID(key)} {
		var err error
		switch e := client(t, ca, key, c); call {
		case "Register":
			_, err = e.Register(t.Context(), &clusterv1.RegisterRequest{})
		case "Commit":
			_, err = e.Commit(t.Context(), &clusterv1.CommitRequest{})
		default:
			_, err = e.Join(t.Context(), &clusterv1.JoinRequest{})
		}
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "`reeve ticket create --output-file ticket`") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestACAThatIsBeingReplaced(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	certificate := after.curator()
	certificate.Certificate = append(certificate.Certificate, before.certificate.Raw)
	c := serve(t, certificate)
	key := newKey(t)
	e := enrol.Patient(enrol.New(enrol.Config{ClusterID: clusterID, Key: key, Pins: [][]byte{before.pin(), after.pin()}, Curators: func() []string { return []string{c.address} }}))
	if _, err := e.Register(t.Context(), &clusterv1.RegisterRequest{}); err != nil {
		t.Error(err)
	}
}

func TestTheNextCuratorAnswers(t *testing.T) {
	ca, key := newAuthority(t), newKey(t)
	foreign, busy, good := serve(t, newAuthority(t).curator()), serve(t, ca.curator()), serve(t, ca.curator())
	busy.refuse(status.Error(codes.Unavailable, "the store has no leader"))
	// The last one: one that is made after it may be given its port.
	closed := serve(t, ca.curator())
	closed.stop()
	for _, other := range []*curator{closed, foreign, busy} {
		key := newKey(t)
		for spread.Order(nodeID(key), []string{other.address, good.address})[0] != other.address {
			key = newKey(t)
		}
		if _, err := client(t, ca, key, other, good).Register(t.Context(), &clusterv1.RegisterRequest{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := client(t, ca, key, closed, foreign, busy, good).Register(t.Context(), &clusterv1.RegisterRequest{}); err != nil {
		t.Error(err)
	}
	_, err := client(t, ca, key, closed, foreign, busy).Register(t.Context(), &clusterv1.RegisterRequest{})
	var pin *enrol.PinError
	var refused *enrol.RefusedError
	if err == nil || errors.As(err, &pin) || errors.As(err, &refused) {
		t.Fatalf("what may pass by itself is %v", err)
	}
	for _, part := range []string{closed.address, foreign.address, busy.address, "the store has no leader", "connection refused", "another CA"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

func TestTheNextCuratorAnswersIfOneIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, key := newAuthority(t), newKey(t)
		listener := bufconn.Listen(64 << 10)
		good := serveOn(t, ca.curator(), listener)
		const silent = "silent:1"
		for spread.Order(nodeID(key), []string{silent, good.address})[0] != silent {
			key = newKey(t)
		}
		asked := 0
		e := enrol.New(enrol.Config{
			ClusterID: clusterID, NodeID: nodeID(key), Key: key, Pins: [][]byte{ca.pin()}, Curators: func() []string { return []string{silent, good.address} },
			Dial: func(ctx context.Context, address string) (net.Conn, error) {
				if address == good.address {
					return listener.DialContext(ctx)
				}
				asked++
				ours, theirs := net.Pipe()
				t.Cleanup(func() { _ = theirs.Close() })
				return ours, nil
			},
		})
		if _, err := e.Register(t.Context(), &clusterv1.RegisterRequest{}); err != nil || asked == 0 {
			t.Errorf("%v; the silent one was asked %d times", err, asked)
		}
	})
}

func TestTheCuratorThatAnsweredIsAskedFirst(t *testing.T) {
	ca, key := newAuthority(t), newKey(t)
	a, b := serve(t, ca.curator()), serve(t, ca.curator())
	e := client(t, ca, key, a, b)
	register := func() {
		t.Helper()
		if _, err := e.Register(t.Context(), &clusterv1.RegisterRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	register()
	first, second := a, b
	if b.called() == 1 {
		first, second = b, a
	}
	first.refuse(status.Error(codes.Unavailable, "it goes"))
	register()
	first.refuse(nil)
	register()
	if first.called() != 2 || second.called() != 2 {
		t.Errorf("%d calls to the one, %d to the other", first.called(), second.called())
	}
}

func TestARefusalIsFinalAndAskedOfOneCuratorOnly(t *testing.T) {
	ca, key := newAuthority(t), newKey(t)
	answer, err := status.New(codes.FailedPrecondition, "a later start has called").WithDetails(&clusterv1.IncarnationRefused{Known: 7})
	if err != nil {
		t.Fatal(err)
	}
	a, b := serve(t, ca.curator()), serve(t, ca.curator())
	a.refuse(answer.Err())
	b.refuse(answer.Err())
	_, err = client(t, ca, key, a, b).Join(t.Context(), &clusterv1.JoinRequest{})
	var refused *enrol.RefusedError
	if !errors.As(err, &refused) || refused.Code != codes.FailedPrecondition || refused.Call != "Join" || refused.Incarnation.GetKnown() != 7 {
		t.Errorf("it is %v", err)
	}
	if a.called()+b.called() != 1 {
		t.Errorf("%d and %d calls", a.called(), b.called())
	}
}

func TestOnlyTheTombstoneThatNamesTheNodeIsBelieved(t *testing.T) {
	ca, key := newAuthority(t), newKey(t)
	c := serve(t, ca.curator())
	e := client(t, ca, key, c)
	for name, test := range inorder.Of(map[string]struct {
		code    codes.Code
		node    string
		removed bool
	}{
		"of this node":     {codes.PermissionDenied, nodeID(key), true},
		"of another node":  {codes.PermissionDenied, nodeID(newKey(t)), false},
		"of nobody":        {codes.PermissionDenied, "", false},
		"by another error": {codes.NotFound, nodeID(key), false},
	}) {
		t.Run(name, func(t *testing.T) {
			answer, err := status.New(test.code, "no").WithDetails(&clusterv1.NodeRemoved{NodeId: test.node, Reason: "by the owner"})
			if err != nil {
				t.Fatal(err)
			}
			c.refuse(answer.Err())
			calls := map[string]func(context.Context) error{
				"Register": func(ctx context.Context) error {
					_, err := e.Register(ctx, &clusterv1.RegisterRequest{})
					return err
				},
				"Await": func(ctx context.Context) error {
					return e.Await(ctx, func(*clusterv1.AwaitResponse) {})
				},
				"Commit": func(ctx context.Context) error { _, err := e.Commit(ctx, &clusterv1.CommitRequest{}); return err },
				"Join": func(ctx context.Context) error {
					_, err := e.Join(ctx, &clusterv1.JoinRequest{})
					return err
				},
			}
			for call, do := range calls {
				err := do(t.Context())
				var removed *enrol.RemovedError
				var refused *enrol.RefusedError
				if errors.As(err, &removed) != test.removed || errors.As(err, &refused) == test.removed {
					t.Errorf("%s: %v", call, err)
				}
				if test.removed && (removed.NodeID != nodeID(key) || removed.Reason != "by the owner") {
					t.Errorf("%s: %+v", call, removed)
				}
			}
		})
	}
}

func TestAwaitEndsWithItsCuratorAndTheContext(t *testing.T) {
	ca, key := newAuthority(t), newKey(t)
	c := serve(t, ca.curator())
	e := client(t, ca, key, c)
	c.states <- clusterv1.NodeState_NODE_STATE_NEW
	err := e.Await(t.Context(), func(*clusterv1.AwaitResponse) { go c.stop() })
	var refused *enrol.RefusedError
	if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), c.address) {
		t.Errorf("it ended with %v", err)
	}
	c.stop()
	again := serve(t, ca.curator())
	again.states <- clusterv1.NodeState_NODE_STATE_NEW
	ctx, cancel := context.WithCancel(t.Context())
	err = client(t, ca, key, again).Await(ctx, func(*clusterv1.AwaitResponse) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func TestWithoutPinsOrCuratorsOrAKeyNobodyIsCalled(t *testing.T) {
	ca, key := newAuthority(t), newKey(t)
	c := serve(t, ca.curator())
	_, err := enrol.New(enrol.Config{ClusterID: clusterID, Curators: func() []string { return []string{c.address} }}).Register(t.Context(), &clusterv1.RegisterRequest{})
	if err == nil || !strings.Contains(err.Error(), "is pinned") {
		t.Errorf("without pins: %v", err)
	}
	if _, err := client(t, ca, key).Register(t.Context(), &clusterv1.RegisterRequest{}); err == nil || !strings.Contains(err.Error(), "no address of a curator") {
		t.Errorf("without curators: %v", err)
	}
	short := enrol.New(enrol.Config{
		ClusterID: clusterID, Key: key[:5], Pins: [][]byte{ca.pin()}, Curators: func() []string { return []string{c.address} },
	})
	if _, err := short.Register(t.Context(), &clusterv1.RegisterRequest{}); err == nil || !strings.Contains(err.Error(), "not an Ed25519") {
		t.Errorf("without a key: %v", err)
	}
	if c.called() != 0 {
		t.Error("it was called")
	}
}
