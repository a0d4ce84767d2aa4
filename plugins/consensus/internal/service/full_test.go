package service_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestFull is what happens when one role fills the store: the node says so, over a restart too, the cluster API goes on, and the store recovers when the
// role's keys are deleted. What others have stored stays.
func TestFull(t *testing.T) {
	const ants, bees = "/reeve/users/ant/", "/reeve/users/bee/"
	directory := storetest.Directory(t)
	p := startWith(t, directory, storetest.Small(t, directory))
	ctx := storetest.Context(t)
	curator, ant, bee := p.instance(t, "curator.1", "curator"), p.instance(t, "ant.1", "ant"), p.instance(t, "bee.1", "bee")
	open := func(number uint64) *follower {
		t.Helper()
		set := &consensusv1.SetAccessRequest{CoreStart: 1, Number: number, Instances: []*consensusv1.AccessInstance{curator, ant, bee}}
		if _, err := p.SetAccess(ctx, set); err != nil {
			t.Fatal(err)
		}
		f := follow(t, p)
		f.until("the cluster API is let in", func(s *consensusv1.StoreStatus) bool {
			return state(s, curator) == consensusv1.AccessState_ACCESS_STATE_OPEN
		})
		grant(t, curator, "ant", "bee")
		f.until("all are let in", func(s *consensusv1.StoreStatus) bool {
			return state(s, ant) == consensusv1.AccessState_ACCESS_STATE_OPEN && state(s, bee) == consensusv1.AccessState_ACCESS_STATE_OPEN
		})
		return f
	}
	if _, err := p.Form(ctx, formNew()); err != nil {
		t.Fatal(err)
	}
	f := open(1)
	if f.current.Quota != store.MinQuota {
		t.Errorf("the status of a new store: %v", f.current)
	}
	f.until("a new store has no problem", func(s *consensusv1.StoreStatus) bool { return s.Problem == "" })
	if _, err := storetest.Dial(t, bee.Socket).Put(ctx, bees+"key", "kept"); err != nil {
		t.Fatal(err)
	}

	// A store that is refused only for its holes recovers by itself. This much of live data leaves it nothing to gain.
	const stored, value = 9 << 20, 512 << 10
	offender := storetest.Dial(t, ant.Socket)
	var refusal error
	accepted := 0
	storetest.EventuallyWithin(t, storetest.RestBound, "the store is full of the role's keys", func() bool {
		for {
			if _, refusal = offender.Put(ctx, fmt.Sprintf("%s%d", ants, accepted), strings.Repeat("x", value)); refusal != nil {
				return accepted*value >= stored && !errors.Is(refusal, rpctypes.ErrTimeout) // etcd times out while its database is rewritten
			}
			accepted++
		}
	})
	if !errors.Is(refusal, rpctypes.ErrNoSpace) || !strings.Contains(refusal.Error(), "database space exceeded") {
		t.Fatalf("the role that fills the store is told: %v", refusal)
	}
	full := func() {
		t.Helper()
		f.until("full", func(s *consensusv1.StoreStatus) bool { return strings.Contains(s.Problem, "the store is full") })
		storetest.Eventually(t, "degraded", func() bool { return strings.HasPrefix(p.reporter.last(), "degraded: the store is full") })
		if _, err := storetest.Dial(t, curator.Socket).Put(ctx, "/reeve/users/curator/key", strings.Repeat("x", 1<<20)); err != nil {
			t.Errorf("the cluster API: %v", err)
		}
		if _, err := storetest.Dial(t, ant.Socket).Put(ctx, ants+"small", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("the role that filled the store puts more: %v", err)
		}
	}
	full()

	p.stop()
	if err := os.Remove(filepath.Join(directory, "plugin.sock")); err != nil {
		t.Fatal(err)
	}
	p = startWith(t, directory, storetest.Small(t, directory))
	if _, err := p.Form(ctx, formExisting()); err != nil {
		t.Fatalf("a full store is not opened again: %v", err)
	}
	f = open(1)
	full()

	if _, err := storetest.Dial(t, ant.Socket).Delete(ctx, ants, clientv3.WithPrefix()); err != nil {
		t.Fatalf("delete in a full store: %v", err)
	}
	f.until("recovered", func(s *consensusv1.StoreStatus) bool { return s.Problem == "" })
	storetest.Eventually(t, "ready", func() bool { return p.reporter.last() == "ready" })
	if _, err := storetest.Dial(t, ant.Socket).Put(ctx, ants+"small", "v"); err != nil {
		t.Errorf("after the recovery: %v", err)
	}
	for key, who := range map[string]*consensusv1.AccessInstance{bees + "key": bee, "/reeve/users/curator/key": curator} {
		if answer, err := storetest.Dial(t, who.Socket).Get(ctx, key); err != nil || len(answer.Kvs) != 1 {
			t.Errorf("%s after the recovery: %v, %v", key, answer, err)
		}
	}
}
