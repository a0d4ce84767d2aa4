package service_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestRecover is what an operator does about a store that a role has filled: the state names the command, the command names the role, and once the
// role's keys are gone it gives the room back.
func TestRecover(t *testing.T) {
	directory := storetest.Directory(t)
	config := storetest.Small(t, directory)
	config.RoomInterval = time.Hour // once by itself, when it gets full, and then not again within this test
	p := startWith(t, directory, config)
	ctx := storetest.Context(t)
	if _, err := p.Recover(ctx, &consensusv1.RecoverRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("before Form: %v, want Unavailable", err)
	}
	if err := p.service.CheckHealth(ctx); err != nil {
		t.Errorf("before Form: %v", err)
	}
	if _, err := p.Form(ctx, formNew()); err != nil {
		t.Fatal(err)
	}
	curator, ant := p.instance(t, "curator.1", "curator"), p.instance(t, "ant.1", "ant")
	set := &consensusv1.SetAccessRequest{CoreStart: 1, Number: 1, Instances: []*consensusv1.AccessInstance{curator, ant}}
	if _, err := p.SetAccess(ctx, set); err != nil {
		t.Fatal(err)
	}
	f := follow(t, p)
	f.until("the cluster API is let in", func(s *consensusv1.StoreStatus) bool {
		return state(s, curator) == consensusv1.AccessState_ACCESS_STATE_OPEN
	})
	grant(t, curator, "ant")
	f.until("the role is let in", func(s *consensusv1.StoreStatus) bool {
		return state(s, ant) == consensusv1.AccessState_ACCESS_STATE_OPEN
	})
	now := f.until("the election is counted", func(s *consensusv1.StoreStatus) bool { return s.LeaderChanges > 0 })
	if now.LeaderChanges != 1 || now.DatabaseInUse == 0 || now.DatabaseInUse > now.DatabaseSize {
		t.Errorf("the status of a new store: %v", now)
	}

	const prefix, value = "/reeve/users/ant/", 512 << 10
	offender := storetest.Dial(t, ant.Socket)
	put := func(n int) error {
		_, err := offender.Put(ctx, fmt.Sprintf("%s%d", prefix, n), strings.Repeat("x", value))
		return err
	}
	// A machine that stands still for a moment has no quorum: the operator tries again.
	recoverOnce := func() (answer *consensusv1.RecoverResponse, err error) {
		storetest.Eventually(t, "the command is carried out", func() bool {
			answer, err = p.Recover(ctx, &consensusv1.RecoverRequest{})
			return status.Code(err) != codes.Unavailable
		})
		return answer, err
	}
	// While something is gained by the command, the role uses it up.
	var refusal error
	for n := 0; status.Code(refusal) != codes.FailedPrecondition; n++ {
		for ; ; n++ {
			if err := put(n); errors.Is(err, rpctypes.ErrNoSpace) {
				break
			} else if err != nil && !errors.Is(err, rpctypes.ErrTimeout) { // etcd times out while its database is rewritten
				t.Fatal(err)
			}
		}
		if _, refusal = recoverOnce(); refusal != nil && status.Code(refusal) != codes.FailedPrecondition {
			t.Fatal(refusal)
		}
	}
	if !strings.Contains(refusal.Error(), "user ant has ") {
		t.Errorf("the command does not say whose data it is: %v", refusal)
	}
	full := f.until("full", func(s *consensusv1.StoreStatus) bool { return strings.Contains(s.Problem, "the store is full") })
	if !strings.Contains(full.Problem, "reeve store recover") {
		t.Errorf("the problem is %q", full.Problem)
	}
	storetest.Eventually(t, "degraded", func() bool { return strings.HasPrefix(p.reporter.last(), "degraded: the store is full") })

	if _, err := offender.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if got := p.reporter.last(); !strings.HasPrefix(got, "degraded") {
		t.Errorf("before the command the role is %s", got)
	}
	recovered, err := recoverOnce()
	if err != nil || recovered.SizeBefore < store.MinQuota/2 || recovered.SizeAfter > 2<<20 {
		t.Errorf("after the delete: %v, %v", recovered, err)
	}
	f.until("recovered", func(s *consensusv1.StoreStatus) bool { return s.Problem == "" })
	storetest.Eventually(t, "ready", func() bool { return p.reporter.last() == "ready" })
	if _, err := offender.Put(ctx, prefix+"small", "v"); err != nil {
		t.Errorf("after the recovery: %v", err)
	}
	if err := p.service.CheckHealth(ctx); err != nil {
		t.Error(err)
	}
}
