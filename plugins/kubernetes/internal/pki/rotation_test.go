package pki

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/proto/identity"
	"github.com/reeveproject/reeve/sdk/consensus/consensustest"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	kubernetesv1 "github.com/reeveproject/reeve/proto/reeve/kubernetes/v1"
)

const (
	prepare  = kubernetesv1.RotationStep_ROTATION_STEP_PREPARE
	activate = kubernetesv1.RotationStep_ROTATION_STEP_ACTIVATE
	retire   = kubernetesv1.RotationStep_ROTATION_STEP_RETIRE
	steady   = kubernetesv1.RotationPhase_ROTATION_PHASE_STEADY
	prepared = kubernetesv1.RotationPhase_ROTATION_PHASE_PREPARED
	active   = kubernetesv1.RotationPhase_ROTATION_PHASE_ACTIVE
)

// told is what a keeper tells of the role.
type told struct {
	state event.Value[string]
	value event.Value[string]
	log   hclog.Logger
}

func (r *told) Ready()                   { r.state.Set("ready") }
func (r *told) Degraded(reason string)   { r.state.Set(reason) }
func (r *told) SetValue(_, value string) { r.value.Set(value) }
func (r *told) Logger() hclog.Logger     { return r.log }

// keep has a keeper follow the store until the test ends.
func keep(t *testing.T, kv store) (*keeper, *told) {
	t.Helper()
	role := &told{log: hclog.New(&hclog.LoggerOptions{Output: t.Output()})}
	k := &keeper{kv: kv, host: role}
	if err := k.await(within(t)); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { k.follow(ctx) })
	t.Cleanup(func() {
		leave()
		group.Wait()
	})
	return k, role
}

func (k *keeper) awaits(t *testing.T, revision uint64) *authorities {
	t.Helper()
	all, err := k.current.Wait(within(t), func(now *authorities) bool { return now.revision == revision })
	if err != nil {
		now, _ := k.current.Get()
		t.Fatalf("it does not come to revision %d, and is at %d", revision, now.revision)
	}
	return all
}

// TestRotation takes all steps with two instances that follow, and looks at every moment whether what each of them signs is good for who trusts what the other one says.
func TestRotation(t *testing.T) {
	store := consensustest.NewStore(t)
	client := store.Client(t, RoleName)
	first, _ := keep(t, client)
	second, _ := keep(t, store.Client(t, RoleName))
	present, _ := first.current.Get()
	began := second.awaits(t, present.revision)
	trusted := []*authorities{began}
	for _, step := range []struct {
		phase  kubernetesv1.RotationPhase
		good   int
		signer func(*authorities) bool
	}{
		{prepared, 2, func(now *authorities) bool { return now.clients.key.Equal(began.clients.key) }},
		{active, 2, func(now *authorities) bool { return !now.clients.key.Equal(began.clients.key) }},
		{steady, 1, func(now *authorities) bool { return !now.clients.key.Equal(began.clients.key) }},
	} {
		next, err := present.after(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		stored, err := replace(within(t), client, present, next)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := replace(within(t), client, present, next); !errors.Is(err, errOvertaken) {
			t.Errorf("a step is taken twice: %v", err)
		}
		for _, keeper := range []*keeper{first, second} {
			now := keeper.awaits(t, stored.revision)
			if now.phase != step.phase || len(now.servers.all) != step.good || len(now.aggregators.all) != step.good || len(now.serviceAccounts) != step.good || !step.signer(now) {
				t.Errorf("%s: %s, with %d authorities of servers", step.phase, now.phase, len(now.servers.all))
			}
			keys, err := now.keys()
			if err != nil || len(keys) != 4*step.good || !keys[0].GetSigns() || step.good > 1 && (keys[1].GetSigns() || keys[0].GetFingerprint() == keys[1].GetFingerprint()) {
				t.Errorf("%s: the keys are %v (%v)", step.phase, keys, err)
			}
			present = now
		}
		// Who has not heard of this step yet, and who has, know each other's certificates; of two steps, not.
		trusted = append(trusted, present)
		for n, signs := range trusted {
			for m, trusts := range trusted {
				if good := knows(t, trusts, signs); good != (n < 2 && m < 3 || n >= 2 && m > 0) {
					t.Errorf("who trusts as after step %d takes a certificate that was signed as after step %d: %t", m, n, good)
				}
			}
		}
	}
	// The key of an authority that does not sign any more is not kept.
	for _, list := range trusted[2].lists {
		if former := list[1]; former.Certificate != nil && former.Key != nil {
			t.Error("the key of a former authority is kept")
		}
	}
	if _, held := present.versions[keyRotation]; held {
		t.Error("it is said where the rotation stands when it is over")
	}
}

// knows reports whether one set of authorities takes a client's certificate that another one has signed.
func knows(t *testing.T, trusts, signs *authorities) bool {
	t.Helper()
	asked, err := requestOf(greedy(t))
	if err != nil {
		t.Fatal(err)
	}
	der, err := signs.clients.sign(asked, leaf{user: "somebody", usage: x509.ExtKeyUsageClientAuth, ends: time.Now().Add(time.Hour)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	for _, each := range trusts.clients.all {
		root, err := x509.ParseCertificate(each)
		if err != nil {
			t.Fatal(err)
		}
		roots.AddCert(root)
	}
	_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// TestRotationOnce: of many that take the same step at the same time, one does.
func TestRotationOnce(t *testing.T) {
	store := consensustest.NewStore(t)
	present, err := open(within(t), store.Client(t, RoleName))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for range 8 {
		client := store.Client(t, RoleName)
		group.Go(func() {
			next, err := present.after(time.Now())
			if err != nil {
				t.Error(err)
				return
			}
			switch _, err := replace(within(t), client, present, next); {
			case err == nil:
				mu.Lock()
				taken++
				mu.Unlock()
			case !errors.Is(err, errOvertaken):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if taken != 1 {
		t.Errorf("the step was taken %d times", taken)
	}
	now, err := load(within(t), store.Client(t, RoleName))
	if err != nil || now.phase != prepared || len(now.servers.all) != 2 {
		t.Errorf("the authorities are not prepared once: %v (%v)", now, err)
	}
}

// TestDamageWhileItRuns: what is damaged is not signed by, and is told; what signed before goes on, and what is taken back is used again.
func TestDamageWhileItRuns(t *testing.T) {
	client := consensustest.NewStore(t).Client(t, RoleName)
	keeper, role := keep(t, client)
	before, _ := keeper.current.Get()
	held, err := client.Get(within(t), keyClients)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"a part is gone":           func() error { _, err := client.Delete(t.Context(), keyClients); return err },
		"nothing is left":          func() error { _, err := client.Delete(t.Context(), "", clientv3.WithPrefix()); return err },
		"a phase without new keys": func() error { _, err := client.Put(t.Context(), keyRotation, `{"phase": "active"}`); return err },
		"no phase":                 func() error { _, err := client.Put(t.Context(), keyRotation, `{"phase": "steady"}`); return err },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := role.state.Wait(within(t), func(now string) bool { return strings.Contains(now, "restore it from a backup") }); err != nil {
			now, _ := role.state.Get()
			t.Errorf("%s: the role says %q", name, now)
		}
		if now, _ := keeper.current.Get(); now.revision != before.revision {
			t.Errorf("%s: something else signs", name)
		}
		var puts []clientv3.Op
		for key, list := range before.lists {
			text, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			puts = append(puts, clientv3.OpPut(key, string(text)))
		}
		if _, err := client.Txn(within(t)).Then(append(puts, clientv3.OpDelete(keyRotation))...).Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := role.state.Wait(within(t), func(now string) bool { return now == "ready" }); err != nil {
			t.Errorf("%s: it is not well when that was taken back", name)
		}
		if before, err = keeper.current.Wait(within(t), func(now *authorities) bool { return now.revision > before.revision }); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := client.Get(within(t), keyClients); err != nil || string(now.Kvs[0].Value) != string(held.Kvs[0].Value) {
		t.Errorf("it is not what it was: %v", err)
	}
}

// TestStoreAway: while the store is away the role says so, and signs on; when it is back, the role is well and follows again.
func TestStoreAway(t *testing.T) {
	store := consensustest.NewStore(t)
	client := store.Client(t, RoleName)
	role := &told{log: hclog.New(&hclog.LoggerOptions{Output: t.Output()})}
	keeper := &keeper{kv: client, host: role}
	if err := keeper.await(within(t)); err != nil {
		t.Fatal(err)
	}
	role.Ready()
	// It is away before a watch of it has begun, too.
	store.Stop()
	ctx, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { keeper.follow(ctx) })
	defer group.Wait()
	defer leave()
	present, _ := keeper.current.Get()
	if _, err := role.state.Wait(within(t), func(now string) bool { return now != "ready" }); err != nil {
		t.Error("it is not told that the store is away")
	}
	store.Start()
	if _, err := role.state.Wait(within(t), func(now string) bool { return now == "ready" }); err != nil {
		now, _ := role.state.Get()
		t.Errorf("it is not well when the store is back: %s", now)
	}
	next, err := present.after(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stored, err := replace(within(t), client, present, next)
	if err != nil {
		t.Fatal(err)
	}
	keeper.awaits(t, stored.revision)
}

// TestRotateCalls takes the steps as the owner does.
func TestRotateCalls(t *testing.T) {
	c := newCluster(t)
	hour := time.Now().Add(time.Hour).Truncate(time.Second)
	operators := map[string]kubernetesv1.PKIServiceClient{
		"owner": c.operator(identity.Session{ID: owner, Ends: hour}), "carol": c.operator(identity.Session{Operator: "carol", ID: "0000000c", Ends: hour}),
		"alice": c.operator(identity.Session{Operator: "alice", ID: "0000000a", Ends: hour}), "bob": c.operator(identity.Session{Operator: "bob", ID: "0000000b", Ends: hour}),
	}
	controller := c.cluster.Host(1).Instance(t, ControllerRole)
	plane := c.of(controller)
	rotate := func(who string, request *kubernetesv1.RotateRequest) (*kubernetesv1.RotateResponse, error) {
		return operators[who].Rotate(within(t), request, grpc.WaitForReady(true))
	}
	standing := func() *kubernetesv1.GetRotationResponse {
		t.Helper()
		now, err := operators["bob"].GetRotation(within(t), &kubernetesv1.GetRotationRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return now
	}

	for _, who := range []string{"alice", "bob"} {
		if _, err := rotate(who, &kubernetesv1.RotateRequest{Step: prepare}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s takes a step: %v", who, err)
		}
	}
	if _, err := plane.Rotate(within(t), &kubernetesv1.RotateRequest{Step: prepare}, grpc.WaitForReady(true)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a control plane takes a step: %v", err)
	}
	if _, err := plane.GetRotation(within(t), &kubernetesv1.GetRotationRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a control plane is told where the rotation stands: %v", err)
	}
	for _, wrong := range []kubernetesv1.RotationStep{0, 99} {
		if _, err := rotate("owner", &kubernetesv1.RotateRequest{Step: wrong}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("step %s: %v", wrong, err)
		}
	}
	for _, wrong := range []kubernetesv1.RotationStep{activate, retire} {
		if _, err := rotate("owner", &kubernetesv1.RotateRequest{Step: wrong, Force: true}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("step %s comes first: %v", wrong, err)
		}
	}

	// The control plane is told of every change, and says what it works with.
	stream, err := plane.WatchTrust(t.Context(), &kubernetesv1.WatchTrustRequest{})
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	works := func() {
		t.Helper()
		response, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if revision := response.GetTrust().GetRevision(); revision <= last {
			t.Fatalf("the revision is %d after %d", revision, last)
		}
		last = response.GetTrust().GetRevision()
		controller.SetValue(TrustValue, FormatRevision(last))
	}
	ready := func() {
		t.Helper()
		eventually(t, func() (bool, any) {
			now := standing()
			return len(now.GetWaiting()) == 0 || strings.HasPrefix(now.GetWaiting()[0], "pods"), now.GetWaiting()
		})
	}
	works()
	if now := standing(); now.GetPhase() != steady || now.GetNext() != prepare || now.GetSince() != nil || len(now.GetKeys()) != 4 || len(now.GetWaiting()) != 0 {
		t.Errorf("it stands at %v", now)
	}
	dry, err := rotate("owner", &kubernetesv1.RotateRequest{Step: prepare, DryRun: true})
	if err != nil || dry.GetPhase() != prepared || len(dry.GetWaiting()) != 3 {
		t.Errorf("a dry run is %v (%v)", dry, err)
	}
	if now := standing(); now.GetPhase() != steady {
		t.Errorf("a dry run has changed something: %v", now)
	}
	if done, err := rotate("carol", &kubernetesv1.RotateRequest{Step: prepare}); err != nil || done.GetPhase() != prepared {
		t.Fatalf("prepare: %v (%v)", done, err)
	}
	if _, err := rotate("owner", &kubernetesv1.RotateRequest{Step: activate}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), ControllerRole+" of node "+c.cluster.Host(1).NodeID()) || !strings.Contains(err.Error(), "in their files yet") {
		t.Errorf("it is not waited for the control plane and the pods: %v", err)
	}
	works()
	ready()
	before := time.Now()
	if done, err := rotate("owner", &kubernetesv1.RotateRequest{Step: activate, Force: true}); err != nil || done.GetPhase() != active {
		t.Fatalf("activate: %v (%v)", done, err)
	}
	works()
	ready()
	if now := standing(); now.GetPhase() != active || now.GetNext() != retire || now.GetSince().AsTime().Before(before) || len(now.GetKeys()) != 8 || len(now.GetWaiting()) != 1 {
		t.Errorf("it stands at %v", now)
	}
	if _, err := rotate("owner", &kubernetesv1.RotateRequest{Step: retire}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "tokens of service accounts") {
		t.Errorf("it is not waited for the tokens: %v", err)
	}
	if done, err := rotate("owner", &kubernetesv1.RotateRequest{Step: retire, Force: true}); err != nil || done.GetPhase() != steady || len(done.GetWaiting()) != 0 {
		t.Errorf("retire: %v (%v)", done, err)
	}
	works()
	if now := standing(); now.GetPhase() != steady || len(now.GetKeys()) != 4 {
		t.Errorf("it stands at %v", now)
	}
}

// TestFollow: who follows is told of the present trust, and of the next one when it has changed.
func TestFollow(t *testing.T) {
	c := newCluster(t)
	client := c.instance(ControllerRole)
	ctx, leave := context.WithCancel(t.Context())
	var revisions event.Value[uint64]
	var group sync.WaitGroup
	group.Go(func() { Follow(ctx, client, hclog.NewNullLogger(), &revisions) })
	defer group.Wait()
	defer leave()
	first, err := revisions.Wait(within(t), func(now uint64) bool { return now != 0 })
	if err != nil {
		t.Fatal(err)
	}
	session := identity.Session{ID: owner, Ends: time.Now().Add(time.Hour).Truncate(time.Second)}
	if _, err := c.operator(session).Rotate(within(t), &kubernetesv1.RotateRequest{Step: prepare}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if _, err := revisions.Wait(within(t), func(now uint64) bool { return now > first }); err != nil {
		t.Errorf("it is not told of the change: %v", err)
	}
}

func TestWaitingFor(t *testing.T) {
	now := time.Now()
	node := func(id string, healthy bool, value string, assigned ...string) *hostv1.DirectoryNode {
		made := &hostv1.DirectoryNode{NodeId: id, Healthy: healthy, Assigned: &hostv1.AssignedRoles{Roles: assigned}}
		if value != "" {
			for _, name := range assigned {
				made.Roles = append(made.Roles, &hostv1.DirectoryRole{Role: name, Values: map[string]string{TrustValue: value}})
			}
		}
		return made
	}
	directory := &hostv1.Directory{Nodes: []*hostv1.DirectoryNode{
		node("a", true, "7", RoleName, ControllerRole), node("b", true, "6", WorkerRole), node("c", false, "", WorkerRole), node("d", true, "", "lighthouse"),
		node("e", true, "x", ControllerRole),
	}}
	for _, test := range []struct {
		all  *authorities
		want []string
	}{
		{&authorities{phase: steady, revision: 8}, nil},
		{&authorities{phase: prepared, revision: 7, since: now}, []string{"kubernetes-controller of node e", "kubernetes-worker of node b", "kubernetes-worker of node c has not said", "pods may not have found"}},
		{&authorities{phase: prepared, revision: 7, since: now.Add(-podTime)}, []string{"kubernetes-controller of node e", "kubernetes-worker of node b", "kubernetes-worker of node c has not said"}},
		{&authorities{phase: active, revision: 7, since: now}, []string{"kubernetes-controller of node e", "kubernetes-worker of node b", "kubernetes-worker of node c", "pods may work"}},
		{&authorities{phase: active, revision: 7, since: now.Add(-tokenTime)}, []string{"kubernetes-controller of node e", "kubernetes-worker of node b", "kubernetes-worker of node c"}},
	} {
		got := waitingFor(test.all, directory, now)
		same := len(got) == len(test.want)
		for n := range min(len(got), len(test.want)) {
			same = same && strings.HasPrefix(got[n], test.want[n])
		}
		if !same {
			t.Errorf("%s: it waits for %q, and should for %q", test.all.phase, got, test.want)
		}
	}
}

// eventually asks until it is so.
func eventually(t *testing.T, so func() (bool, any)) {
	t.Helper()
	for ctx := within(t); ; {
		ok, seen := so()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it does not come to that: %v", seen)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// of is the service for an instance.
func (c *cluster) of(host *role.Host) kubernetesv1.PKIServiceClient {
	c.t.Helper()
	roletest.AwaitEndpoint(c.t, host, c.cluster.Host(0), RoleName, Endpoint)
	return c.dial(host)
}
