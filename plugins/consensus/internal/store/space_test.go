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
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// big is a value of which not many fit in a store of the smallest quota.
var big = strings.Repeat("x", 512<<10)

// awaitRoom waits until a store says who may write.
func awaitRoom(t *testing.T, s *store.Store, want store.Room) store.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), storetest.RestBound)
	defer cancel()
	// A machine that stands still for a moment has no quorum, and a status without one says nothing else.
	status, err := s.Status().Wait(ctx, func(status store.Status) bool { return status.Room == want && status.Quorum() })
	if err != nil {
		now, _ := s.Status().Get()
		t.Fatalf("room %d, want %d: %s", now.Room, want, now.Problem())
	}
	return status
}

// fill puts keys with big values as root, whom only etcd's own quota stops, until it does for good: what is left when everything was tried is data.
func fill(t *testing.T, s *store.Store, prefix string) {
	t.Helper()
	ctx := storetest.Context(t)
	for n := 0; ; n++ {
		_, err := s.Client().Put(store.Root(ctx), fmt.Sprintf("%s%03d", prefix, n), big)
		if err == nil || errors.Is(err, rpctypes.ErrTimeout) && ctx.Err() == nil {
			continue
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatal(err)
		}
		var full *store.NoRoomError
		if _, err = storetest.Recover(ctx, s); errors.As(err, &full) && full.Status.Room == store.NoRoom {
			return
		}
		if err != nil && full == nil {
			t.Fatal(err)
		}
	}
}

// patiently does what can be done twice, again as long as etcd says that it took too long or that nobody leads: while its database is rewritten nothing else is done, which a busy
// disk makes long.
func patiently(t *testing.T, ctx context.Context, do func() error) {
	t.Helper()
	for {
		err := do()
		var told rpctypes.EtcdError
		if err == nil || ctx.Err() != nil || !errors.As(err, &told) || told.Code() != codes.Unavailable {
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}

// TestAlarm takes a store past its reserve, up to etcd's own quota. It stays so while its data lives, and recovers when there is less.
func TestAlarm(t *testing.T) {
	config := storetest.Small(t, storetest.Directory(t))
	s, stop := storetest.OpenWith(t, config, storetest.Plan)
	root := store.Root(storetest.Context(t))
	if _, err := s.Client().Put(root, "/other", "v"); err != nil {
		t.Fatal(err)
	}
	fill(t, s, "/a/")
	status := awaitRoom(t, s, store.NoRoom)
	t.Log(status.Problem())
	for _, want := range []string{"the store is full", "nobody can write", "16 MiB", "quotaBytes"} {
		if !strings.Contains(status.Problem(), want) {
			t.Errorf("%q does not say %q", status.Problem(), want)
		}
	}
	short, cancel := context.WithTimeout(root, 20*config.RoomInterval)
	defer cancel()
	if now, err := s.Status().Wait(short, func(status store.Status) bool { return status.Room != store.NoRoom }); err == nil {
		t.Errorf("a store full of live data took its alarm back: %+v", now)
	}
	// Users can still be made and removed, and a user's keys deleted.
	patiently(t, root, func() error { return s.EnsureUser(root, "ant") })
	patiently(t, root, func() error { return s.RemoveUser(root, "ant") })

	// The next instance has a new reserve, so that the cluster user can write again; nobody else.
	stop()
	s, _ = storetest.OpenWith(t, config, storetest.Plan)
	awaitRoom(t, s, store.RoomForClusterUser)
	patiently(t, root, func() error { _, err := s.Client().Put(root, "/reeve/users/curator/key", "v"); return err })
	patiently(t, root, func() error { _, err := s.Client().Delete(root, "/a/", clientv3.WithPrefix()); return err })
	status = awaitRoom(t, s, store.RoomForAll)
	if status.DatabaseSize > 2<<20 || status.Problem() != "" {
		t.Errorf("after the delete: %+v", status)
	}
	for _, key := range []string{"/other", "/reeve/users/curator/key"} {
		if answer, err := s.Client().Get(root, key); err != nil || len(answer.Kvs) != 1 {
			t.Errorf("%s: %v, %v", key, answer, err)
		}
	}
}

// TestAlarmWithoutRestart deletes in a store whose alarm is on.
func TestAlarmWithoutRestart(t *testing.T) {
	s, _ := storetest.OpenWith(t, storetest.Small(t, storetest.Directory(t)), storetest.Plan)
	root := store.Root(storetest.Context(t))
	fill(t, s, "/a/")
	awaitRoom(t, s, store.NoRoom)
	patiently(t, root, func() error { _, err := s.Client().Delete(root, "/a/", clientv3.WithPrefix()); return err })
	awaitRoom(t, s, store.RoomForAll)
	patiently(t, root, func() error { _, err := s.Client().Put(root, "/a/A", big); return err })
}

// TestHistoryMakesRoomByItself writes one key over and over: what is full is only history.
func TestHistoryMakesRoomByItself(t *testing.T) {
	s, _ := storetest.OpenWith(t, storetest.Small(t, storetest.Directory(t)), storetest.Plan)
	root := store.Root(storetest.Context(t))
	written := 0
	began := time.Now()
	for written < int(store.MinQuota)*3/2 {
		_, err := s.Client().Put(root, "/key", big)
		switch {
		case err == nil:
			written += len(big)
		case errors.Is(err, rpctypes.ErrTimeout) && time.Since(began) <= storetest.RestBound: // etcd rewrites its database
		case !errors.Is(err, rpctypes.ErrNoSpace) || time.Since(began) > storetest.RestBound:
			t.Fatalf("after %d bytes: %v", written, err)
		default:
			awaitRoom(t, s, store.RoomForAll)
		}
	}
}

// TestSmallerQuota opens a store whose database is larger than the quota, and then with the old one again.
func TestSmallerQuota(t *testing.T) {
	config := storetest.Small(t, storetest.Directory(t))
	config.Quota = 4 * store.MinQuota
	s, stop := storetest.OpenWith(t, config, storetest.Plan)
	root := store.Root(storetest.Context(t))
	for n := range 34 {
		if _, err := s.Client().Put(root, "/a/"+string(rune('A'+n)), big); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	config.Quota = store.MinQuota
	s, stop = storetest.OpenWith(t, config, storetest.Plan)
	awaitRoom(t, s, store.RoomForClusterUser)
	// The cluster API has room to say that the quota should be larger again.
	patiently(t, root, func() error { _, err := s.Client().Put(root, "/key", "v"); return err })
	stop()
	config.Quota = 4 * store.MinQuota
	s, _ = storetest.OpenWith(t, config, storetest.Plan)
	awaitRoom(t, s, store.RoomForAll)
}
