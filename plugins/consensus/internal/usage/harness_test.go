package usage_test

import (
	"context"
	"maps"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/plugins/consensus/internal/desired"
	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// as makes the calls of a user, as the door does: etcd sees only what is admitted, and its permissions hold.
type as struct {
	store *store.Store
	user  string
}

func (a as) ctx(ctx context.Context) context.Context { return store.As(ctx, a.user) }

func (a as) put(ctx context.Context, key, value string) error {
	_, err := do(ctx, a, &pb.PutRequest{Key: []byte(consensusv1.UserPrefix(a.user) + key), Value: []byte(value)}, a.store.Server().Put)
	return err
}

func (a as) remove(ctx context.Context, key, end string) error {
	request := &pb.DeleteRangeRequest{Key: []byte(consensusv1.UserPrefix(a.user) + key)}
	if end != "" {
		request.RangeEnd = []byte(consensusv1.UserPrefix(a.user) + end)
	}
	_, err := do(ctx, a, request, a.store.Server().DeleteRange)
	return err
}

func (a as) txn(ctx context.Context, request *pb.TxnRequest) (*pb.TxnResponse, error) {
	return do(ctx, a, request, a.store.Server().Txn)
}

func do[Q, A any](ctx context.Context, a as, request Q, call func(context.Context, Q) (A, error)) (answer A, err error) {
	settle, err := a.store.Admit(ctx, a.user, request)
	if err != nil {
		return answer, err
	}
	answer, err = call(a.ctx(ctx), request)
	settle(answer, err)
	return answer, err
}

// grant is what the cluster API does: from then on the users may have so much.
func grant(t testing.TB, s *store.Store, users ...*consensusv1.DesiredUser) {
	t.Helper()
	content, err := proto.Marshal(&consensusv1.DesiredState{Users: users, Members: []string{"reeve-1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range users {
		if err := s.EnsureUser(storetest.Context(t), user.ConsensusUser); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := s.Client().Put(store.Root(storetest.Context(t)), desired.Key("curator"), string(content))
	if err != nil {
		t.Fatal(err)
	}
	counted(t, s, answer.Header.Revision)
}

// counted waits until a revision is counted.
func counted(t testing.TB, s *store.Store, revision int64) {
	t.Helper()
	storetest.Eventually(t, "the count of the last revision", func() bool { return s.Counted() >= revision })
}

// bytesOf are the bytes of all users as the store publishes them.
func bytesOf(s *store.Store) map[string]int64 {
	users := make(map[string]int64)
	for _, user := range s.UsageNow() {
		if user.Bytes != 0 {
			users[user.ConsensusUser] = user.Bytes
		}
	}
	return users
}

// follow has a counter of the test's own follow a store.
func follow(t *testing.T, s *store.Store) *usage.Counter {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	counter, err := usage.Open(ctx, usage.Config{
		Log: storetest.Log(t), KV: s.Server().KV(), ClusterUser: storetest.Plan.ClusterUser,
		Numbers: func() map[string]uint32 { return nil }, Leases: func() ([]int64, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var following sync.WaitGroup
	following.Go(func() {
		if err := counter.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); following.Wait() })
	return counter
}

// checkCount compares what was counted step by step with what is stored.
func checkCount(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *store.Store) map[string]int64 {
	t.Helper()
	sums, _, revision, err := usage.Sum(context.Background(), s.Server().KV())
	if err != nil {
		t.Fatalf("add up what is stored: %v", err)
	}
	bytes := make(map[string]int64)
	for user, stored := range sums {
		bytes[user] = stored.Bytes
	}
	if got := bytesOf(s); s.Counted() != revision || !maps.Equal(got, bytes) {
		t.Fatalf("at revision %d the users have %v, at %d they are counted to have %v", revision, sums, s.Counted(), got)
	}
	return bytes
}
