package store_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
)

func newKey(t testing.TB) ed25519.PublicKey {
	t.Helper()
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func node(t testing.TB, roles ...string) *clusterv1.NodeRecord {
	key := newKey(t)
	record := &clusterv1.NodeRecord{Id: identity.NodeID(key), PublicKey: key, State: clusterv1.NodeState_NODE_STATE_UP, Generation: 1}
	for _, role := range roles {
		record.Roles = append(record.Roles, &clusterv1.RoleAssignment{Role: role, Generation: 1})
	}
	return record
}

func plugin(name, user string, provides ...string) *clusterv1.PluginRecord {
	return &clusterv1.PluginRecord{
		Name: name, Version: "1.0.0", Generation: 1,
		Manifest: &rolev1.Manifest{Name: name, Version: "1.0.0", Roles: []*rolev1.RoleManifest{{Name: name, ConsensusUser: user, Provides: provides}}},
		Grants:   []*clusterv1.RoleGrants{{Role: name, ConsensusUser: user}},
	}
}

func operator(t testing.TB, name string) *clusterv1.Operator {
	return &clusterv1.Operator{
		Name: name, Role: clusterv1.OperatorRole_OPERATOR_ROLE_VIEWER, Id: "00112233445566778899aabbccddeeff", PublicKey: newKey(t), CreatedBy: "owner",
	}
}

func genesis(t testing.TB) store.Genesis {
	first := node(t, "consensus", "curator")
	return store.Genesis{
		Cluster: &curatorv1.Cluster{Format: store.Format, ClusterId: "test", OwnerPublicKey: newKey(t), FirstNodePublicKey: first.GetPublicKey()},
		CA:      &curatorv1.CertificateAuthority{Certificates: [][]byte{[]byte("certificate")}},
		Key:     &curatorv1.SigningKey{PrivateKey: []byte("key")},
		Node:    first,
		Plugins: []*clusterv1.PluginRecord{plugin("consensus", "", "reeve.consensus.v1"), plugin("curator", "curator", "reeve.cluster.v1"), plugin("lighthouse", "beam")},
	}
}

// call is a call that changes something.
type call struct{ kept int }

func (c *call) Entry() *clusterv1.AuditEntry {
	return &clusterv1.AuditEntry{Rpc: "Test", Caller: "operator test", Code: "OK"}
}

func (c *call) Kept() { c.kept++ }

func open(t testing.TB) (*store.Store, *clientv3.Client) {
	client := etcd.Client(t, etcd.NewPrefix())
	// On a busy machine the store may be slow; what takes too long is tested where it is said.
	return store.New(store.Config{Client: client, Leases: etcd.Leases(t), ClusterUser: "curator", AnswerWithin: 2 * time.Minute}), client
}

func created(t testing.TB) (*store.Store, *clientv3.Client, store.Genesis) {
	t.Helper()
	s, client := open(t)
	first := genesis(t)
	if ok, err := s.Create(t.Context(), first); !ok || err != nil {
		t.Fatalf("Create: %v, %v", ok, err)
	}
	return s, client, first
}

func desired(t testing.TB, client *clientv3.Client) *consensusv1.DesiredState {
	t.Helper()
	got, err := client.Get(t.Context(), consensusv1.DesiredStateKey)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("Get: %v, %v", got, err)
	}
	state := new(consensusv1.DesiredState)
	if err := proto.Unmarshal(got.Kvs[0].Value, state); err != nil {
		t.Fatal(err)
	}
	return state
}

func TestCreate(t *testing.T) {
	s, client, first := created(t)
	state, err := s.ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.State().Nodes, state.Nodes, protocmp.Transform()); diff != "" {
		t.Errorf("nodes: %s", diff)
	}
	if diff := cmp.Diff(first.State().Plugins, state.Plugins, protocmp.Transform()); diff != "" {
		t.Errorf("plugins: %s", diff)
	}
	key, certificate, err := s.ReadSigningKey(t.Context())
	if err != nil || string(key) != "key" || string(certificate) != "certificate" {
		t.Errorf("signing key: %q, %q, %v", key, certificate, err)
	}
	want := &consensusv1.DesiredState{
		Users:   []*consensusv1.DesiredUser{{ConsensusUser: "beam", Role: "lighthouse"}},
		Members: []string{first.Node.GetId()},
	}
	if diff := cmp.Diff(want, desired(t, client), protocmp.Transform()); diff != "" {
		t.Errorf("desired: %s", diff)
	}
	if ok, err := s.Create(t.Context(), genesis(t)); ok || err != nil {
		t.Errorf("a second Create: %v, %v", ok, err)
	}
}

// Create is for an empty store: whatever is there belongs to somebody.
func TestCreateRefusesAnythingThere(t *testing.T) {
	s, client := open(t)
	if _, err := client.Put(t.Context(), "something", ""); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.Create(t.Context(), genesis(t)); ok || err != nil {
		t.Errorf("Create: %v, %v", ok, err)
	}
	if _, err := s.ReadRecords(t.Context()); !errors.Is(err, store.ErrNoCluster) {
		t.Errorf("ReadRecords: %v", err)
	}
}

func TestUpdateWritesEpochAndDesiredState(t *testing.T) {
	s, client, _ := created(t)
	second := node(t, "consensus")
	state, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) {
		return &store.Change{Nodes: []*clusterv1.NodeRecord{second}, Plugins: []*clusterv1.PluginRecord{plugin("other", "other")}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if state.Epoch != 2 || len(state.Nodes) != 2 {
		t.Errorf("epoch %d, %d nodes", state.Epoch, len(state.Nodes))
	}
	got := desired(t, client)
	if len(got.GetMembers()) != 2 || len(got.GetUsers()) != 2 {
		t.Errorf("desired: %v", got)
	}
	read, err := s.ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if read.Epoch != 2 || read.Revision != state.Revision {
		t.Errorf("read epoch %d at %d, written at %d", read.Epoch, read.Revision, state.Revision)
	}
	state, err = s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) { return nil, nil })
	if err != nil || state.Epoch != 2 || state.Revision != read.Revision {
		t.Errorf("an update without a change: epoch %d at %d, %v", state.Epoch, state.Revision, err)
	}
}

// Whoever decided from something that has changed since decides again.
func TestUpdateComparesEverything(t *testing.T) {
	tests := map[string]func(t *testing.T, s *store.Store, client *clientv3.Client){
		"a record is deleted": func(t *testing.T, _ *store.Store, client *clientv3.Client) {
			epoch, err := proto.Marshal(&curatorv1.Epoch{Number: 2})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Txn(t.Context()).Then(clientv3.OpDelete("plugins/lighthouse"), clientv3.OpPut("epoch", string(epoch))).Commit(); err != nil {
				t.Fatal(err)
			}
		},
		"the consensus store tells something else": func(t *testing.T, _ *store.Store, client *clientv3.Client) {
			value, err := proto.Marshal(&consensusv1.StoreState{Members: []*consensusv1.StoreStateMember{{NodeId: "reeve-1"}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Put(t.Context(), consensusv1.StoreStateKey, string(value)); err != nil {
				t.Fatal(err)
			}
		},
	}
	// Whatever record another curator writes: no record is compared, so each has to be written with the epoch.
	ticket := &curatorv1.Ticket{Id: "0123456789abcdef", SecretSha256: make([]byte, 32), Expires: timestamppb.Now()}
	for what, change := range map[string]*store.Change{
		"a node": {Nodes: []*clusterv1.NodeRecord{node(t)}}, "a plugin": {Plugins: []*clusterv1.PluginRecord{plugin("other", "")}},
		"a plugin that goes": {RemovedPlugins: []string{"lighthouse"}}, "the policy": {Policy: &clusterv1.ClusterPolicy{Generation: 2}},
		"an operator": {Operators: []*clusterv1.Operator{operator(t, "other")}}, "an operator who goes": {Revoked: []string{"other"}},
		"a ticket": {Tickets: []*curatorv1.Ticket{ticket}}, "a ticket that goes": {RevokedTickets: []string{ticket.GetId()}},
		"whose keys go": {WipedUsers: []string{"nobody"}}, "a start that is accepted": {Accepted: []string{"reeve-1"}},
	} {
		tests["another curator writes "+what] = func(t *testing.T, other *store.Store, _ *clientv3.Client) {
			if _, err := other.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) { return change, nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		interfere := tests[name]
		t.Run(name, func(t *testing.T) {
			s, client, first := created(t)
			other := store.New(store.Config{Client: client, ClusterUser: "curator", AnswerWithin: time.Minute}) // of another curator: the changes of one take turns
			runs := 0
			if _, err := s.Update(t.Context(), new(call), func(state *store.State) (*store.Change, error) {
				if runs++; runs == 1 {
					interfere(t, other, client)
				}
				changed := proto.CloneOf(state.Nodes[first.Node.GetId()])
				changed.Generation++
				return &store.Change{Nodes: []*clusterv1.NodeRecord{changed}}, nil
			}); err != nil {
				t.Fatal(err)
			}
			if runs != 2 {
				t.Errorf("decided %d times", runs)
			}
		})
	}
}

func TestUpdateGivesUp(t *testing.T) {
	s, _, _ := created(t)
	other := store.New(store.Config{Client: store.ClientOf(s), ClusterUser: "curator", AnswerWithin: time.Minute})
	_, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) {
		busy := node(t)
		if _, err := other.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) {
			return &store.Change{Nodes: []*clusterv1.NodeRecord{busy}}, nil
		}); err != nil {
			t.Fatal(err)
		}
		return &store.Change{Nodes: []*clusterv1.NodeRecord{node(t)}}, nil
	})
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("Update: %v", err)
	}
}

func TestConcurrentUpdatesAllCount(t *testing.T) {
	s, _, first := created(t)
	const writers = 4
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			if _, err := s.Update(t.Context(), new(call), func(state *store.State) (*store.Change, error) {
				changed := proto.CloneOf(state.Nodes[first.Node.GetId()])
				changed.Generation++
				return &store.Change{Nodes: []*clusterv1.NodeRecord{changed}}, nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	state, err := s.ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := state.Nodes[first.Node.GetId()].GetGeneration(); got != 1+writers || state.Epoch != 1+writers {
		t.Errorf("generation %d, epoch %d, want %d", got, state.Epoch, 1+writers)
	}
}

// TestUpdatesDoNotDisturbEachOther holds that the changes of one curator take turns: none is decided twice.
func TestUpdatesDoNotDisturbEachOther(t *testing.T) {
	s, _, _ := created(t)
	// A slow machine has them wait, and one that waits for too long goes on without a turn.
	s = store.New(store.Config{Client: store.ClientOf(s), ClusterUser: "curator", AnswerWithin: time.Minute})
	const writers = 20
	var decisions atomic.Int64
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			if _, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) {
				decisions.Add(1)
				return &store.Change{Nodes: []*clusterv1.NodeRecord{node(t)}}, nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if made := decisions.Load(); made != writers {
		t.Errorf("%d changes took %d decisions", writers, made)
	}
}

// A change says how much is written for it, by which its caller waits with the next one.
func TestWhatAChangeWrites(t *testing.T) {
	s, _, _ := created(t)
	changed := &store.Change{Nodes: []*clusterv1.NodeRecord{node(t)}}
	changed.Nodes[0].Labels = map[string]string{"large": strings.Repeat("x", 10_000)}
	if _, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) { return changed, nil }); err != nil {
		t.Fatal(err)
	}
	if changed.Written < 10_000 || changed.Written > 20_000 {
		t.Errorf("it says that %d bytes are written", changed.Written)
	}
}

// TestUpdateWithoutItsTurn holds that a change which hangs does not hold up the others for good, nor a caller that gives up.
func TestUpdateWithoutItsTurn(t *testing.T) {
	s, _, _ := created(t)
	store.GiveUpTurns(s)
	change := func(*store.State) (*store.Change, error) {
		return &store.Change{Nodes: []*clusterv1.NodeRecord{node(t)}}, nil
	}
	begun, release := make(chan struct{}), make(chan struct{})
	var hangs sync.WaitGroup
	hangs.Go(func() {
		var once sync.Once
		if _, err := s.Update(t.Context(), new(call), func(state *store.State) (*store.Change, error) {
			once.Do(func() { close(begun) })
			<-release
			return change(state)
		}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.Update(gone, new(call), change); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has given up: %v", err)
	}
	if _, err := s.Update(t.Context(), new(call), change); err != nil {
		t.Errorf("beside a change that hangs: %v", err)
	}
	close(release)
	hangs.Wait()
}

func TestTooLarge(t *testing.T) {
	s, _, first := created(t)
	large := proto.CloneOf(first.Node)
	large.Labels = map[string]string{"large": strings.Repeat("x", 2<<20)}
	_, err := s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) {
		return &store.Change{Nodes: []*clusterv1.NodeRecord{large}}, nil
	})
	var tooLarge *store.TooLargeError
	if !errors.As(err, &tooLarge) {
		t.Errorf("Update: %v", err)
	}
}

func TestOtherFormat(t *testing.T) {
	s, client, _ := created(t)
	value, err := proto.Marshal(&curatorv1.Cluster{Format: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "cluster", string(value)); err != nil {
		t.Fatal(err)
	}
	_, err = s.Update(t.Context(), new(call), func(*store.State) (*store.Change, error) { t.Error("decided"); return nil, nil })
	var format *store.FormatError
	if !errors.As(err, &format) || format.Format != 2 {
		t.Errorf("Update: %v", err)
	}
}

func TestDamagedRecords(t *testing.T) {
	s, client, first := created(t)
	if _, err := client.Put(t.Context(), "status/"+first.Node.GetId(), "\xff"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadCluster(t.Context()); err != nil {
		t.Errorf("with a damaged status: %v", err)
	}
	if _, err := client.Put(t.Context(), "nodes/nonsense", "\xff"); err != nil {
		t.Fatal(err)
	}
	_, err := s.ReadRecords(t.Context())
	var record *store.RecordError
	if !errors.As(err, &record) || record.Key != "nodes/nonsense" {
		t.Errorf("with a damaged node: %v", err)
	}
	if _, err := s.ReadNode(t.Context(), first.Node.GetId()); err != nil {
		t.Errorf("another node, with a damaged one: %v", err)
	}
}

func TestUnavailableWithinBounds(t *testing.T) {
	client := etcd.Client(t, etcd.NewPrefix())
	s := store.New(store.Config{Client: client, AnswerWithin: time.Nanosecond})
	_, err := s.ReadAll(t.Context())
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) {
		t.Errorf("ReadAll: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := fmt.Errorf("the caller is gone")
	cancel(gone)
	if _, err := s.ReadAll(ctx); !errors.Is(err, gone) || errors.As(err, &unavailable) {
		t.Errorf("ReadAll of a caller that is gone: %v", err)
	}
}
