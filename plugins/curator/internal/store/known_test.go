package store_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestReadRecordsIsAsNewAsTheStore has two curators and the consensus role write in any order: what a curator that knows the records reads is what one reads that has just begun.
func TestReadRecordsIsAsNewAsTheStore(t *testing.T) {
	// The same is written each time, unless REEVE_TEST_SEED says otherwise.
	seed := uint64(1)
	if text := os.Getenv("REEVE_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	first, client, _ := created(t)
	curators := []*store.Store{first, store.New(store.Config{Client: client, ClusterUser: "curator", AnswerWithin: time.Minute})}
	update := func(decide func(*store.State) *store.Change) {
		s := curators[random.IntN(len(curators))]
		if _, err := s.Update(t.Context(), new(call), func(state *store.State) (*store.Change, error) { return decide(state), nil }); err != nil {
			t.Fatal(err)
		}
	}
	put := func(key string, record proto.Message) {
		value, err := proto.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(t.Context(), key, string(value)); err != nil {
			t.Fatal(err)
		}
	}
	ticket := &curatorv1.Ticket{Id: "0123456789abcdef", SecretSha256: make([]byte, 32), Expires: timestamppb.Now()}
	for range 400 {
		switch random.IntN(7) {
		case 0:
			update(func(*store.State) *store.Change { return &store.Change{Nodes: []*clusterv1.NodeRecord{node(t)}} })
		case 1:
			update(func(*store.State) *store.Change { return &store.Change{Tickets: []*curatorv1.Ticket{ticket}} })
		case 2:
			update(func(state *store.State) *store.Change {
				return &store.Change{RevokedTickets: slices.Collect(maps.Keys(state.Tickets))}
			})
		case 3:
			update(func(*store.State) *store.Change { return &store.Change{RemovedPlugins: []string{"lighthouse"}} })
		case 4:
			update(func(*store.State) *store.Change { return nil })
		case 5: // the consensus role tells
			put(consensusv1.StoreStateKey, new(consensusv1.StoreState))
		default:
			same(t, client, curators)
		}
	}
	same(t, client, curators)
}

// same fails unless all curators read the same as one that knows nothing.
func same(t *testing.T, client *clientv3.Client, curators []*store.Store) {
	t.Helper()
	want, err := store.New(store.Config{Client: client, ClusterUser: "curator", AnswerWithin: time.Minute}).ReadRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range curators {
		got, err := s.ReadRecords(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(store.State{}, "Revision"), cmpopts.IgnoreUnexported(store.State{})); diff != "" {
			t.Fatalf("curator %d reads something else:\n%s", i, diff)
		}
		if again, err := s.ReadRecords(t.Context()); err != nil || again != got {
			t.Fatalf("curator %d reads what stands a second time: %v", i, err)
		}
	}
}

// TestReadRecordsOfAnEarlierStore puts the store back to what it was: all that is there is older than what is known, and what is known is not returned.
func TestReadRecordsOfAnEarlierStore(t *testing.T) {
	_, earlier, first := created(t)
	s, client, _ := created(t)
	if _, err := s.ReadRecords(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.KV = earlier.KV
	state, err := s.ReadRecords(t.Context())
	if err != nil || state.Nodes[first.Node.GetId()] == nil {
		t.Errorf("%v, %v", state, err)
	}
	if _, err := client.Delete(t.Context(), "cluster"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadRecords(t.Context()); !errors.Is(err, store.ErrNoCluster) {
		t.Errorf("without a cluster: %v", err)
	}
}
