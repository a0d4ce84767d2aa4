package auth

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/curator/internal/cache"
	curatorv1 "github.com/reeveproject/reeve/plugins/curator/internal/reeve/curator/v1"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// fullStore keeps no start.
type fullStore struct{ StartStore }

func (fullStore) Incarnate(context.Context, int64, string, *clusterv1.Incarnation) (int64, error) {
	return 0, fmt.Errorf("put: %w", store.ErrFull)
}

func known(number uint64, nonce string) *curatorv1.KnownIncarnation {
	return &curatorv1.KnownIncarnation{Number: number, Nonce: []byte(nonce)}
}

// standing is a cluster in which a start of node n1 is known; nil: none is.
func standing(revision int64, start *curatorv1.KnownIncarnation) *store.State {
	state := &store.State{Revision: revision, Cluster: new(curatorv1.Cluster), Incarnations: make(map[string]*curatorv1.KnownIncarnation)}
	if start != nil {
		state.Incarnations["n1"] = start
	}
	return state
}

// TestStartThatCouldNotBeKept has a start be taken by a store that is full: it stands next to the one that is known, and not next to another one.
func TestStartThatCouldNotBeKept(t *testing.T) {
	for _, before := range []*curatorv1.KnownIncarnation{nil, known(2, "b")} {
		starts := NewStarts(StartsConfig{Store: fullStore{}, Log: hclog.NewNullLogger(), Now: time.Now})
		caller := Caller{NodeID: "n1", incarnation: &clusterv1.Incarnation{Number: 5, Nonce: []byte("e")}}
		var err error
		if caller.revision, caller.over, err = starts.Admit(t.Context(), standing(10, before), "n1", caller.incarnation); err != nil {
			t.Fatal(err)
		}
		for _, start := range []*curatorv1.KnownIncarnation{nil, before, known(5, "e")} {
			if err := caller.superseded(standing(11, start)); err != nil {
				t.Errorf("%v was known, now %v: %v", before, start, err)
			}
		}
		for _, start := range []*curatorv1.KnownIncarnation{known(5, "other"), known(6, "f"), known(3, "accepted")} {
			if err := caller.superseded(standing(11, start)); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%v was known, now %v: %v", before, start, err)
			}
		}
	}
}

// TestStartsHaveAPace: who has the key of a node can claim that it starts again and again, and each start is written. Others have a pace of their own, and a start that is known costs nothing.
func TestStartsHaveAPace(t *testing.T) {
	now := time.Now()
	starts := NewStarts(StartsConfig{Store: fullStore{}, Log: hclog.NewNullLogger(), Now: func() time.Time { return now }})
	begin := func(node string, number uint64) error {
		_, _, err := starts.Admit(t.Context(), standing(10, known(2, "b")), node, &clusterv1.Incarnation{Number: number, Nonce: []byte("b")})
		return err
	}
	for n := range uint64(startsAtOnce) {
		if err := begin("n1", 3+n); err != nil {
			t.Fatalf("start %d: %v", n, err)
		}
	}
	if err := begin("n1", 1000); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	for what, err := range map[string]error{"the start that is known": begin("n1", 2), "another node": begin("n2", 3)} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	now = now.Add(startEvery)
	if err := begin("n1", 1001); err != nil {
		t.Errorf("later: %v", err)
	}
}

// TestStandsByADamagedRecord has the record of the cluster be damaged: that says nothing of a node's certificate.
func TestStandsByADamagedRecord(t *testing.T) {
	snapshots := new(event.Value[*cache.Snapshot])
	guard := NewGuard(GuardConfig{Snapshots: snapshots})
	caller := Caller{NodeID: "n1", stands: func(state *store.State) error {
		return unauthenticated("no certificate of cluster %q", state.Cluster.GetClusterId())
	}}
	state := standing(1, nil)
	snapshots.Set(&cache.Snapshot{State: state})
	if err := guard.stands(caller); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a whole record: %v", err)
	}
	damaged := *state
	damaged.Cluster = nil
	snapshots.Set(&cache.Snapshot{State: &damaged})
	if err := guard.stands(caller); err != nil {
		t.Errorf("a damaged record: %v", err)
	}
}
