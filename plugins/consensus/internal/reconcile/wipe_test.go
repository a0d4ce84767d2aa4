package reconcile_test

import (
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

func wiping(t *testing.T, wiped []string, users ...string) []byte {
	t.Helper()
	desired := &consensusv1.DesiredState{Members: []string{"reeve-1"}, WipedUsers: wiped}
	for _, user := range users {
		desired.Users = append(desired.Users, &consensusv1.DesiredUser{ConsensusUser: user, Role: user})
	}
	content, err := proto.Marshal(desired)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func keysOf(t *testing.T, s *store.Store, user string) int64 {
	t.Helper()
	answer, err := s.Client().Get(store.Root(storetest.Context(t)), consensusv1.UserPrefix(user), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return answer.Count
}

// fill stores some keys of a user, one of them on a lease of its own.
func fill(t *testing.T, s *store.Store, user string, keys int) clientv3.LeaseID {
	t.Helper()
	root := store.Root(storetest.Context(t))
	lease := clientv3.LeaseID(numbers.NewLease(s.Number(user)))
	if _, err := s.Server().LeaseGrant(root, &pb.LeaseGrantRequest{ID: int64(lease), TTL: 3600}); err != nil {
		t.Fatal(err)
	}
	for n := range keys {
		var options []clientv3.OpOption
		if n == 0 {
			options = append(options, clientv3.WithLease(lease))
		}
		putKey(t, s, fmt.Sprintf("%s%05d", consensusv1.UserPrefix(user), n), "value", options...)
	}
	return lease
}

// TestWipe withdraws users with and without their data.
func TestWipe(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	stop := run(t, s)
	put(t, s, document(t, "ant", "ants", "bee", "fly"))
	await(t, s, "ant", "ants", "bee", "curator", "fly")
	const keys = 300 // more than are removed at a time
	leases := make(map[string]clientv3.LeaseID)
	former := make(map[string]uint32)
	for _, user := range []string{"ant", "ants", "bee", "fly"} {
		leases[user], former[user] = fill(t, s, user, keys), s.Number(user)
	}

	// The fly is wanted after all; the bee keeps its data; the cluster user and who never was are none to be wiped.
	put(t, s, wiping(t, []string{"ant", "curator", "fly", "nobody"}, "ants", "fly"))
	await(t, s, "ants", "curator", "fly")
	storetest.Eventually(t, "the end of what the user has stored", func() bool {
		return keysOf(t, s, "ant") == 0 && s.Number("ant") == 0 && !hasLease(t, s, leases["ant"])
	})
	for _, user := range []string{"ants", "bee", "fly"} {
		if got := keysOf(t, s, user); got != keys || !hasLease(t, s, leases[user]) || s.Number(user) != former[user] {
			t.Errorf("the user %s has %d of %d keys, its lease: %t, the number %d of %d", user, got, keys, hasLease(t, s, leases[user]), s.Number(user), former[user])
		}
	}
	if keysOf(t, s, "curator") == 0 {
		t.Error("the document is gone")
	}
	// Both come again: one to what it had, the other to nothing, under a number that nobody had.
	put(t, s, document(t, "ant", "ants", "bee", "fly"))
	await(t, s, "ant", "ants", "bee", "curator", "fly")
	if s.Number("bee") != former["bee"] {
		t.Errorf("a user that kept its data has the number %d, before %d", s.Number("bee"), former["bee"])
	}
	for user, number := range former {
		if s.Number("ant") == number {
			t.Errorf("the number %d of the user %s was given again", number, user)
		}
	}

	// While nobody reconciles: a wipe for a document that is not the present one does nothing, nor one of a user that is still there.
	stop()
	fill(t, s, "ant", keys)
	put(t, s, document(t, "ants", "bee", "fly"))
	ctx := storetest.Context(t)
	answer, err := s.Client().Get(store.Root(ctx), key)
	if err != nil {
		t.Fatal(err)
	}
	present := answer.Kvs[0].ModRevision
	if _, err := s.Wipe(ctx, "ant", key, present); err == nil || keysOf(t, s, "ant") != keys {
		t.Errorf("a user that is there was wiped: %v", err)
	}
	if err := s.RemoveUser(ctx, "ant"); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []int64{present - 1, 0, present + 1} {
		if removed, err := s.Wipe(ctx, "ant", key, revision); !errors.Is(err, store.ErrChanged) || removed != 0 || keysOf(t, s, "ant") != keys || s.Number("ant") == 0 {
			t.Errorf("a wipe by another document: %d keys, %v", removed, err)
		}
	}
	for _, want := range []int64{keys, 0} {
		if removed, err := s.Wipe(ctx, "ant", key, present); err != nil || removed != want || keysOf(t, s, "ant") != 0 {
			t.Errorf("a wipe: %d keys, %v, want %d", removed, err, want)
		}
	}
	for _, user := range []string{"curator", "root", "", "../bee"} {
		if _, err := s.Wipe(ctx, user, key, present); err == nil {
			t.Errorf("%q was wiped", user)
		}
	}
}

func hasLease(t *testing.T, s *store.Store, lease clientv3.LeaseID) bool {
	t.Helper()
	answer, err := s.Client().Leases(store.Root(storetest.Context(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range answer.Leases {
		if found.ID == lease {
			return true
		}
	}
	return false
}
