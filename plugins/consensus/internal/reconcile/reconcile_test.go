package reconcile_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/reconcile"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

var noPassword = &clientv3.UserAddOptions{NoPassword: true}

const key = "/reeve/users/curator/" + consensusv1.DesiredStateKey

// run reconciles until the returned function is called.
func run(t *testing.T, s *store.Store) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := reconcile.New(storetest.Log(t), s, "curator").Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func document(t *testing.T, users ...string) []byte {
	t.Helper()
	desired := &consensusv1.DesiredState{Members: []string{"reeve-1"}}
	for _, user := range users {
		desired.Users = append(desired.Users, &consensusv1.DesiredUser{ConsensusUser: user, Role: user})
	}
	content, err := proto.Marshal(desired)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func put(t *testing.T, s *store.Store, content []byte) {
	t.Helper()
	putKey(t, s, key, string(content))
}

func putKey(t *testing.T, s *store.Store, key, value string, options ...clientv3.OpOption) {
	t.Helper()
	for {
		_, err := s.Client().Put(store.Root(storetest.Context(t)), key, value, options...)
		if errors.Is(err, rpctypes.ErrAuthOldRevision) { // the reconciler changed the permissions at the same time
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
}

func usersOf(s *store.Store) []string {
	status, _ := s.Status().Get()
	return slices.Sorted(maps.Keys(status.Users))
}

func await(t *testing.T, s *store.Store, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Bound)
	defer cancel()
	if _, err := s.Status().Wait(ctx, func(store.Status) bool { return slices.Equal(usersOf(s), want) }); err != nil {
		t.Fatalf("the users are %v, want %v", usersOf(s), want)
	}
}

func TestUsersFollowTheDocument(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ctx := storetest.Context(t)
	if err := s.EnsureUser(ctx, "early"); err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)

	// A malformed document, before there was ever a good one, takes nobody away.
	put(t, s, []byte("\xff\xff"))
	put(t, s, nil)
	put(t, s, document(t, "early", "lighthouse"))
	await(t, s, "curator", "early", "lighthouse")

	put(t, s, document(t, "kubernetes", "lighthouse"))
	await(t, s, "curator", "kubernetes", "lighthouse")
	// Nobody comes in as a user before it is deleted.
	storetest.Eventually(t, "nothing is left of the withdrawn user", func() bool {
		accounts, err := s.Accounts()
		return err == nil && slices.Equal(accounts, []string{"curator", "kubernetes", "lighthouse"})
	})

	// Nor does one after a good one, nor the document's disappearance; each is followed by a change that shows that it was seen.
	for _, content := range [][]byte{[]byte("\xff\xff"), nil, document(t, "root"), document(t, "twice", "twice")} {
		put(t, s, content)
	}
	if _, err := s.Client().Delete(store.Root(ctx), key); err != nil { // nothing changes the permissions meanwhile: the documents before were malformed
		t.Fatal(err)
	}
	put(t, s, document(t, "kubernetes", "later", "lighthouse"))
	await(t, s, "curator", "kubernetes", "later", "lighthouse")

	stop()
	put(t, s, document(t))
	run(t, s)
	await(t, s, "curator")
}

// TestMalformedKeepsTheLastGood looks at the users after the malformed document was surely seen: a restart of the reconciler reads it first.
func TestMalformedKeepsTheLastGood(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	stop := run(t, s)
	put(t, s, document(t, "lighthouse"))
	await(t, s, "curator", "lighthouse")
	first, _ := s.Status().Get()
	stop()

	put(t, s, []byte("\xff\xff"))
	run(t, s)
	// The round that reads the malformed document also puts right the cluster user; wait for that.
	if _, err := s.Client().RoleGrantPermission(store.Root(storetest.Context(t)), "curator", "x", "y", 0); err != nil {
		t.Fatal(err)
	}
	put(t, s, []byte("\xff\xff\xff"))
	storetest.Eventually(t, "the round after the malformed document", func() bool {
		role, err := s.Client().RoleGet(store.Root(storetest.Context(t)), "curator")
		return err == nil && len(role.Perm) == 1
	})
	if now, _ := s.Status().Get(); now.Users["lighthouse"] != first.Users["lighthouse"] {
		t.Errorf("a malformed document touched a user: %v, before %v", now.Users, first.Users)
	}
}

// TestUnfinishedStepsAreFinished begins with what a crash between any two steps leaves behind.
func TestUnfinishedStepsAreFinished(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	root := store.Root(storetest.Context(t))
	client := s.Client()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.RoleAdd(root, "bare"))                                                                     // making: only the role
	must(client.RoleAdd(root, "granted"))                                                                  // and its permission
	must(client.RoleGrantPermission(root, "granted", "/reeve/users/granted/", "/reeve/users/granted0", 2)) // …
	must(client.RoleAdd(root, "loose"))                                                                    // and the user, without the role
	must(client.RoleGrantPermission(root, "loose", "/reeve/users/loose/", "/reeve/users/loose0", 2))       // …
	must(client.UserAddWithOptions(root, "loose", "", noPassword))                                         // …
	must(client.RoleAdd(root, "orphan"))                                                                   // removing: the user is gone, the role is not
	must(client.RoleGrantPermission(root, "orphan", "/reeve/users/orphan/", "/reeve/users/orphan0", 2))    // …
	must(client.UserAddWithOptions(root, "roleless", "", noPassword))                                      // the role is gone, the user is not
	put(t, s, document(t, "bare", "granted", "loose"))
	run(t, s)
	await(t, s, "bare", "curator", "granted", "loose")
	storetest.Eventually(t, "nothing left of the withdrawn users", func() bool {
		accounts, err := s.Accounts()
		return err == nil && slices.Equal(accounts, []string{"bare", "curator", "granted", "loose"})
	})
}
