package server_test

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

func TestOperators(t *testing.T) {
	c := newCluster(t)
	watched := watch(t, c.asNode())
	watched.await("no operators", func(r *clusterv1.WatchResponse) bool { return len(r.GetOperators()) == 0 })
	began := time.Now().Add(-time.Second)
	zoe := c.addOperator("zoe", roleOwner)
	alice, err := zoe.client().AddOperator(t.Context(), &clusterv1.AddOperatorRequest{Name: "alice", Role: roleViewer, PublicKey: public(newKey(t))})
	if err != nil {
		t.Fatal(err)
	}
	if zoe.record.GetCreatedBy() != "owner" || alice.GetOperator().GetCreatedBy() != "operator zoe" || zoe.record.GetCreated().AsTime().Before(began) {
		t.Errorf("added by %q and %q at %v", zoe.record.GetCreatedBy(), alice.GetOperator().GetCreatedBy(), zoe.record.GetCreated().AsTime())
	}
	want := []*clusterv1.Operator{alice.GetOperator(), zoe.record}
	list, err := c.asOwner().ListOperators(t.Context(), &clusterv1.ListOperatorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&clusterv1.ListOperatorsResponse{Operators: want, OwnerPublicKey: public(c.owner)}, list, protocmp.Transform()); diff != "" {
		t.Errorf("list: %s", diff)
	}
	both := watched.await("both operators", func(r *clusterv1.WatchResponse) bool { return len(r.GetOperators()) == 2 })
	if diff := cmp.Diff(want, both.GetOperators(), protocmp.Transform()); diff != "" {
		t.Errorf("what nodes are told: %s", diff)
	}

	again, err := c.asOwner().AddOperator(t.Context(), &clusterv1.AddOperatorRequest{Name: "zoe", Role: roleOwner, PublicKey: public(zoe.key)})
	if err != nil || again.GetOperator().GetId() != zoe.record.GetId() {
		t.Errorf("the same again: %v, %v", again, err)
	}
	// A session that begins before somebody is revoked ends with it, also by another curator, and one may revoke oneself.
	session := zoe.login()
	revoked, err := c.as(session).RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "zoe"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(zoe.record, revoked.GetOperator(), protocmp.Transform()); diff != "" {
		t.Errorf("revoked: %s", diff)
	}
	_, err = c.as(session).ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	wantCode(t, err, codes.Unauthenticated, `"zoe"`, "revoked")
	_, err = c.as(session).Login(t.Context(), &clusterv1.LoginRequest{PublicKey: public(newKey(t))})
	wantCode(t, err, codes.Unauthenticated)
	watched.await("the other one", func(r *clusterv1.WatchResponse) bool { return len(r.GetOperators()) == 1 })
	_, err = c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "zoe"})
	wantCode(t, err, codes.NotFound, `"zoe"`, "alice")

	second := start(t, etcd, c.prefix, nil).ready()
	_, err = clusterv1.NewManagementServiceClient(c.dial(second, session)).ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	wantCode(t, err, codes.Unauthenticated, "revoked")
}

func TestAddOperatorRefusals(t *testing.T) {
	c := newCluster(t)
	alice := c.addOperator("alice", roleOperator)
	tests := map[string]struct {
		request *clusterv1.AddOperatorRequest
		code    codes.Code
		says    []string
	}{
		"no name":            {&clusterv1.AddOperatorRequest{Role: roleViewer, PublicKey: public(newKey(t))}, codes.InvalidArgument, []string{"name"}},
		"a name with a path": {&clusterv1.AddOperatorRequest{Name: "a/b", Role: roleViewer, PublicKey: public(newKey(t))}, codes.InvalidArgument, []string{"name"}},
		"the owner's name":   {&clusterv1.AddOperatorRequest{Name: "owner", Role: roleViewer, PublicKey: public(newKey(t))}, codes.InvalidArgument, []string{"somebody else"}},
		"nobody's name":      {&clusterv1.AddOperatorRequest{Name: "unknown", Role: roleViewer, PublicKey: public(newKey(t))}, codes.InvalidArgument, []string{"somebody else"}},
		"no role":            {&clusterv1.AddOperatorRequest{Name: "bob", PublicKey: public(newKey(t))}, codes.InvalidArgument, []string{"role"}},
		"a role of later":    {&clusterv1.AddOperatorRequest{Name: "bob", Role: 99, PublicKey: public(newKey(t))}, codes.InvalidArgument, []string{"role"}},
		"no key":             {&clusterv1.AddOperatorRequest{Name: "bob", Role: roleViewer}, codes.InvalidArgument, []string{"public_key"}},
		"a short key":        {&clusterv1.AddOperatorRequest{Name: "bob", Role: roleViewer, PublicKey: make([]byte, 31)}, codes.InvalidArgument, []string{"31"}},
		"another key":        {&clusterv1.AddOperatorRequest{Name: "alice", Role: roleOperator, PublicKey: public(newKey(t))}, codes.AlreadyExists, []string{"another key", "revoke alice"}},
		"another role":       {&clusterv1.AddOperatorRequest{Name: "alice", Role: roleOwner, PublicKey: public(alice.key)}, codes.AlreadyExists, []string{"role, which is operator"}},
		"an operator's key":  {&clusterv1.AddOperatorRequest{Name: "bob", Role: roleViewer, PublicKey: public(alice.key)}, codes.AlreadyExists, []string{"operator alice"}},
		"the owner's key":    {&clusterv1.AddOperatorRequest{Name: "bob", Role: roleViewer, PublicKey: public(c.owner)}, codes.AlreadyExists, []string{"the owner's"}},
		"a node's key":       {&clusterv1.AddOperatorRequest{Name: "bob", Role: roleViewer, PublicKey: public(c.node)}, codes.AlreadyExists, []string{c.id}},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			_, err := c.asOwner().AddOperator(t.Context(), test.request)
			wantCode(t, err, test.code, test.says...)
			test.request.DryRun = true
			_, err = c.asOwner().AddOperator(t.Context(), test.request)
			wantCode(t, err, test.code, test.says...)
		})
	}
}

func TestTooManyOperators(t *testing.T) {
	c := newCluster(t)
	for from := 0; from < 1000; from += 50 {
		c.update(func(*store.State) *store.Change {
			change := new(store.Change)
			for n := range 50 {
				change.Operators = append(change.Operators, &clusterv1.Operator{
					Name: fmt.Sprintf("o%d", from+n), Role: roleViewer, Id: fmt.Sprintf("%032x", from+n), PublicKey: public(newKey(t)),
				})
			}
			return change
		})
	}
	_, err := c.asOwner().AddOperator(t.Context(), &clusterv1.AddOperatorRequest{Name: "bob", Role: roleViewer, PublicKey: public(newKey(t))})
	wantCode(t, err, codes.ResourceExhausted, "1000")
}

// Of two curators that add the same key under two names, one does.
func TestOneKeyTwoNames(t *testing.T) {
	c := newCluster(t)
	second := start(t, etcd, c.prefix, nil).ready()
	clients := []clusterv1.ManagementServiceClient{c.asOwner(), clusterv1.NewManagementServiceClient(c.dial(second, selfSigned(t, c.owner)))}
	for round := range 5 {
		key := newKey(t)
		errs := make([]error, 2)
		var group sync.WaitGroup
		for i := range clients {
			group.Go(func() {
				_, errs[i] = clients[i].AddOperator(t.Context(), &clusterv1.AddOperatorRequest{Name: fmt.Sprintf("o%d-%d", round, i), Role: roleViewer, PublicKey: public(key)})
			})
		}
		group.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v; %v", round, errs[0], errs[1])
		}
	}
}

func leafOf(t *testing.T, certificate *tls.Certificate) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestLogin(t *testing.T) {
	c := newCluster(t)
	alice := c.addOperator("alice", roleOperator)
	for _, test := range []struct {
		name               string
		by                 *tls.Certificate
		request            *clusterv1.LoginRequest
		lifetime, session  time.Duration
		operator, commonly string
		role               clusterv1.OperatorRole
		id                 string
	}{
		{"the owner", selfSigned(t, c.owner), &clusterv1.LoginRequest{}, time.Hour, 12 * time.Hour, "", "owner", roleOwner, identity.OwnerKeyID(public(c.owner))},
		{"an operator", selfSigned(t, alice.key), &clusterv1.LoginRequest{}, time.Hour, 12 * time.Hour, "alice", "alice", roleOperator, alice.record.GetId()},
		{"for a week", selfSigned(t, alice.key), &clusterv1.LoginRequest{LifetimeSeconds: 60, SessionSeconds: 7 * 24 * 3600},
			time.Minute, 7 * 24 * time.Hour, "alice", "alice", roleOperator, alice.record.GetId()},
		{"for a moment", selfSigned(t, alice.key), &clusterv1.LoginRequest{SessionSeconds: 90}, 90 * time.Second, 90 * time.Second, "alice", "alice", roleOperator, alice.record.GetId()},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := time.Now().Truncate(time.Second)
			session, response := c.loginWith(test.by, test.request)
			after := time.Now()
			if response.GetOperator() != test.operator || response.GetRole() != test.role || len(response.GetCertificate()) != 1 {
				t.Errorf("answer: %v", response)
			}
			leaf := leafOf(t, session)
			within := func(what string, got time.Time, from time.Duration) {
				t.Helper()
				if got.Before(before.Add(from)) || got.After(after.Add(from)) {
					t.Errorf("%s: %v, want %v from now", what, got, from)
				}
			}
			within("the certificate begins", leaf.NotBefore, -time.Minute)
			within("the certificate ends", leaf.NotAfter, test.lifetime)
			within("the session ends", response.GetSessionEnds().AsTime(), test.session)
			if leaf.NotAfter.After(response.GetSessionEnds().AsTime()) {
				t.Errorf("the certificate ends at %v, the session at %v", leaf.NotAfter, response.GetSessionEnds().AsTime())
			}
			if !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || len(leaf.DNSNames) > 0 || leaf.IsCA ||
				leaf.KeyUsage != x509.KeyUsageDigitalSignature || leaf.Subject.CommonName != test.commonly || leaf.SerialNumber.BitLen() < 64 {
				t.Errorf("the certificate is %+v", leaf)
			}
			ca, err := x509.ParseCertificate(c.ca[0])
			if err != nil {
				t.Fatal(err)
			}
			got, err := identity.VerifySession([]*x509.Certificate{leaf}, []*x509.Certificate{ca}, identity.TrustDomain(clusterID), time.Now())
			if err != nil || got.Operator != test.operator || got.ID != test.id || !got.Ends.Equal(response.GetSessionEnds().AsTime()) {
				t.Errorf("the session is %+v, %v", got, err)
			}
			if _, err := c.as(session).ListNodes(t.Context(), &clusterv1.ListNodesRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A certificate is renewed without the key, but never beyond the session that the key began.
func TestRenewal(t *testing.T) {
	c := newCluster(t)
	alice := c.addOperator("alice", roleViewer)
	first, began := c.loginWith(selfSigned(t, alice.key), &clusterv1.LoginRequest{SessionSeconds: 600, LifetimeSeconds: 60})
	with := first
	for range 3 {
		var renewed *clusterv1.LoginResponse
		with, renewed = c.loginWith(with, &clusterv1.LoginRequest{SessionSeconds: 7 * 24 * 3600})
		if !renewed.GetSessionEnds().AsTime().Equal(began.GetSessionEnds().AsTime()) {
			t.Fatalf("the session ended at %v, now at %v", began.GetSessionEnds().AsTime(), renewed.GetSessionEnds().AsTime())
		}
		if leaf := leafOf(t, with); !leaf.NotAfter.Equal(began.GetSessionEnds().AsTime()) {
			t.Errorf("the certificate ends at %v", leaf.NotAfter)
		}
	}
	if !leafOf(t, with).PublicKey.(ed25519.PublicKey).Equal(with.PrivateKey.(ed25519.PrivateKey).Public()) {
		t.Error("the certificate is for another key")
	}
}

func TestLoginRefusals(t *testing.T) {
	c := newCluster(t)
	key := public(newKey(t))
	for field, request := range map[string]*clusterv1.LoginRequest{
		"public_key":       {PublicKey: key[1:]},
		"lifetime_seconds": {PublicKey: key, LifetimeSeconds: 3601},
		"session_seconds":  {PublicKey: key, SessionSeconds: 7*24*3600 + 1},
	} {
		_, err := c.asOwner().Login(t.Context(), request)
		wantCode(t, err, codes.InvalidArgument, field)
	}
	_, err := c.as(selfSigned(t, c.node)).Login(t.Context(), &clusterv1.LoginRequest{PublicKey: key})
	wantCode(t, err, codes.PermissionDenied, "node "+c.id)
}

// clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// On one connection that stays open, a certificate that ends is no longer good for the next call, and neither is the session.
func TestCertificateEndsOnAnOpenConnection(t *testing.T) {
	clock := &clock{now: time.Now()}
	c := newClusterOn(t, etcd, func(config *server.Config) { config.Now = clock.Now })
	client := c.as(c.ownerSession())
	if _, err := client.ListNodes(t.Context(), &clusterv1.ListNodesRequest{}); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Hour + time.Minute)
	_, err := client.ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
	wantCode(t, err, codes.Unauthenticated, "reeve login")
	_, err = client.Login(t.Context(), &clusterv1.LoginRequest{PublicKey: public(newKey(t))})
	wantCode(t, err, codes.Unauthenticated)
}

// A stream goes on while its caller is who it was, and ends soon when not, while those of others go on.
func TestStreamsEndWithTheirCaller(t *testing.T) {
	c := newCluster(t)
	alice, bob := c.addOperator("alice", roleViewer), c.addOperator("bob", roleViewer)
	ctx := inTime(t)
	watchAs := func(certificate *tls.Certificate) func() error {
		t.Helper()
		stream, err := c.as(certificate).WatchNode(ctx, &clusterv1.WatchNodeRequest{NodeId: c.id})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		return func() error {
			_, err := stream.Recv()
			return err
		}
	}
	asAlice, asBob, asOwner, asSession := watchAs(alice.login()), watchAs(bob.login()), watchAs(selfSigned(t, c.owner)), watchAs(c.ownerSession())

	// What does not concern them ends nobody's stream.
	carol := c.addOperator("carol", roleViewer)
	if _, err := c.asOwner().RevokeOperator(ctx, &clusterv1.RevokeOperatorRequest{Name: carol.record.GetName()}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asOwner().RevokeOperator(ctx, &clusterv1.RevokeOperatorRequest{Name: "alice"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, asAlice(), codes.Unauthenticated, "operator alice")
	if _, err := c.asOwner().AddRole(ctx, &clusterv1.AddRoleRequest{NodeId: c.id, Role: "hostsfile"}); err != nil {
		t.Fatal(err)
	}
	for name, next := range map[string]func() error{"bob": asBob, "the owner": asOwner, "the owner's session": asSession} {
		if err := next(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.curator.service.ReplaceOwner(ctx, &clusterv1.ReplaceOwnerRequest{OwnerPublicKey: public(newKey(t)), Requester: "user 0"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, asOwner(), codes.Unauthenticated, "owner")
	wantCode(t, asSession(), codes.Unauthenticated, "owner")
}

// A stream does not outlast the certificate that it was begun with.
func TestStreamsEndWithTheirCertificate(t *testing.T) {
	c := newCluster(t)
	var session *tls.Certificate
	var err error
	// On a busy machine a certificate may end before a stream has begun: that one shows nothing.
	for ctx, begun := inTime(t), false; !begun && ctx.Err() == nil; {
		session, _ = c.loginWith(selfSigned(t, c.owner), &clusterv1.LoginRequest{LifetimeSeconds: 2})
		stream, begin := c.as(session).WatchNode(ctx, &clusterv1.WatchNodeRequest{NodeId: c.id})
		if err = begin; err != nil {
			t.Fatal(err)
		}
		for err == nil {
			if _, err = stream.Recv(); err == nil {
				begun = true
			}
		}
	}
	wantCode(t, err, codes.Unauthenticated, "certificate of owner ended")
	if left := time.Until(leafOf(t, session).NotAfter); left > 0 {
		t.Errorf("the stream ended %v before its certificate", left)
	}
}

func TestReplaceOwner(t *testing.T) {
	c := newCluster(t)
	alice := c.addOperator("alice", roleOwner)
	replace := func(key ed25519.PublicKey, requester string) error {
		_, err := c.curator.service.ReplaceOwner(t.Context(), &clusterv1.ReplaceOwnerRequest{OwnerPublicKey: key, Requester: requester})
		return err
	}
	wantCode(t, replace(nil, "user 0"), codes.InvalidArgument, "owner_public_key")
	wantCode(t, replace(public(newKey(t)), ""), codes.InvalidArgument, "requester")
	wantCode(t, replace(public(newKey(t)), "user 0\nroot"), codes.InvalidArgument, "requester")
	wantCode(t, replace(public(c.node), "user 0"), codes.FailedPrecondition, c.id)
	wantCode(t, replace(public(alice.key), "user 0"), codes.FailedPrecondition, "operator alice")
	if err := replace(public(c.owner), "user 0"); err != nil {
		t.Errorf("the same key: %v", err)
	}
	watched := watch(t, c.asNode())
	watched.await("the owner", func(r *clusterv1.WatchResponse) bool {
		return public(c.owner).Equal(ed25519.PublicKey(r.GetOwnerPublicKey()))
	})

	old, oldSession, oldClient := c.asOwner(), c.ownerSession(), c.asOwner()
	if _, err := oldClient.ListNodes(t.Context(), &clusterv1.ListNodesRequest{}); err != nil {
		t.Fatal(err) // the connection is open
	}
	next := newKey(t)
	if err := replace(public(next), "user 0"); err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]clusterv1.ManagementServiceClient{"the old key": old, "its session": c.as(oldSession), "an open connection": oldClient} {
		_, err := client.ListNodes(t.Context(), &clusterv1.ListNodesRequest{})
		if err == nil {
			t.Errorf("%s is still let in", name)
		}
		wantCode(t, err, codes.Unauthenticated)
		_, err = client.Login(t.Context(), &clusterv1.LoginRequest{PublicKey: public(newKey(t))})
		wantCode(t, err, codes.Unauthenticated)
	}
	watched.await("the next owner", func(r *clusterv1.WatchResponse) bool {
		return public(next).Equal(ed25519.PublicKey(r.GetOwnerPublicKey()))
	})
	c.owner = next
	newest := c.newest() // by the next owner
	want := &clusterv1.AuditEntry{Rpc: "ReplaceOwner", Caller: "core of node " + c.id, Kind: clusterv1.Caller_CALLER_CORE,
		Address: "local", Parameters: map[string]string{"requester": "user 0"}, Code: "OK", NodeId: c.id}
	entries := slices.DeleteFunc(c.log(20), func(e *clusterv1.AuditEntry) bool { return e.GetRpc() != "ReplaceOwner" })
	if newest == nil || len(entries) != 7 {
		t.Fatalf("%d entries", len(entries))
	}
	entries[0].Sequence, entries[0].Time = 0, nil
	if diff := cmp.Diff(want, entries[0], protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if got, err := alice.client().ListNodes(t.Context(), &clusterv1.ListNodesRequest{}); err != nil {
		t.Errorf("the operators stay: %v, %v", got, err)
	}
}
