package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestRecover has an operator make room: in a store that is full of data, which says whose it is; in one whose data was deleted; and in one that was
// never full.
func TestRecover(t *testing.T) {
	config := storetest.Small(t, storetest.Directory(t))
	config.RoomInterval = time.Hour // once by itself, when it gets full, and then not again within this test
	s, _ := storetest.OpenWith(t, config, storetest.Plan)
	ctx := storetest.Context(t)
	root := store.Root(ctx)
	put := func(key, value string) {
		t.Helper()
		_, err := s.Client().Put(root, key, value)
		for errors.Is(err, rpctypes.ErrTimeout) { // the machine stood still
			_, err = s.Client().Put(root, key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	// History only: what is gained is given back, although nothing was missing.
	for range 8 {
		put("/reeve/users/bee/key", big)
	}
	recovered, err := storetest.Recover(ctx, s)
	if err != nil || recovered.Before < 8*int64(len(big)) || recovered.After > recovered.Before/2 || recovered.After <= int64(len(big)) {
		t.Errorf("a store full of history: %+v, %v", recovered, err)
	}
	if again, err := storetest.Recover(ctx, s); err != nil || again.After > recovered.After {
		t.Errorf("once more: %+v, %v, after %+v", again, err, recovered)
	}

	for n := range 8 {
		put(fmt.Sprintf("/reeve/users/user%d/key", n), strings.Repeat("x", 1000*(n+1)))
	}
	put("/reeve/users/user8", "of nobody")
	// While something is gained by it, it is used up.
	var full *store.NoRoomError
	for n := 0; !errors.As(err, &full); n++ {
		for ; ; n++ {
			if _, refused := s.Client().Put(root, fmt.Sprintf("/reeve/users/ant/%d", n), big); errors.Is(refused, rpctypes.ErrNoSpace) {
				break
			} else if refused != nil && !errors.Is(refused, rpctypes.ErrTimeout) { // etcd times out while its database is rewritten
				t.Fatal(refused)
			}
		}
		if _, err = storetest.Recover(ctx, s); err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
	}
	t.Log(err)
	for _, want := range []string{"the store is full", "everybody can delete", "user ant has ", "user bee has 512 KiB (keys: 1)", "quotaBytes", "6 others"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	stored, err := s.Client().Get(root, "/reeve/users/ant/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if first := full.Usage[0]; first.User != "ant" || int64(first.Keys) != stored.Count || first.Bytes/stored.Count/1024 != int64(len(big))/1024 {
		t.Errorf("the first user is %+v, and has %d keys", first, stored.Count)
	}
	if third := full.Usage[2]; third.User != "user7" || third.Keys != 1 || third.Bytes < 8000 || third.Bytes > 8200 {
		t.Errorf("the third user is %+v", third)
	}
	if status, _ := s.Status().Get(); status.Room == store.RoomForAll {
		t.Error("there is room after an attempt that failed")
	}

	if _, err := s.Client().Delete(root, "/reeve/users/ant/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	recovered, err = storetest.Recover(ctx, s)
	if err != nil || recovered.After > 2<<20 || recovered.Before < store.MinQuota/2 {
		t.Errorf("after the delete: %+v, %v", recovered, err)
	}
	if status, _ := s.Status().Get(); status.Room != store.RoomForAll {
		t.Errorf("after the recovery: %+v", status)
	}
	if status := awaitRoom(t, s, store.RoomForAll); status.Problem() != "" || status.InUse > recovered.After {
		t.Errorf("after the recovery: %+v", status)
	}
	put("/reeve/users/ant/0", big)
	if answer, err := s.Client().Get(root, "/reeve/users/bee/key"); err != nil || len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != big {
		t.Errorf("what others have stored: %v", err)
	}

	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Recover(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
}

// TestRecoverWithoutQuorum asks a store whose other member never came.
func TestRecoverWithoutQuorum(t *testing.T) {
	s := lonely(t)
	if _, err := s.Recover(storetest.Context(t)); !errors.Is(err, store.ErrNoQuorum) {
		t.Errorf("without a quorum: %v", err)
	}
}

// lonely is a store that has lost its quorum: it has a second member that does not exist.
func lonely(t *testing.T) *store.Store {
	t.Helper()
	config := storetest.Config(t, storetest.Directory(t))
	config.PulseInterval = pulse
	s, _ := storetest.OpenWith(t, config, storetest.Plan)
	if _, err := s.Client().MemberAdd(store.Root(storetest.Context(t)), []string{"unix://nobody"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Status().Wait(storetest.Context(t), func(status store.Status) bool { return !status.Quorum() }); err != nil {
		t.Fatal(err)
	}
	return s
}
