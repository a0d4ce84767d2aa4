package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/reeveproject/reeve/sdk/conformance/store"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

// TestConfined has a user ask for its own and for what is not: etcd refuses that, and the store has written it down.
func TestConfined(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	opened, err := store.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}()
	user, err := opened.User(ctx, "mine")
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + user.Socket()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	const own, foreign = "/reeve/users/mine/key", "/reeve/users/other/key"
	lease, err := client.Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, own, "value", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if usage := user.Usage(); usage.Requests != 2 || len(usage.Denied) != 0 {
		t.Errorf("after two requests for its own: %+v", usage)
	}
	if _, err := client.Put(ctx, foreign, "value"); err == nil {
		t.Error("it writes what is not its own")
	}
	if _, err := client.MemberList(ctx); err == nil {
		t.Error("it lists the members")
	}
	for answer := range client.Watch(ctx, foreign) {
		if answer.Err() == nil {
			t.Error("it watches what is not its own")
		}
	}
	usage := user.Usage()
	for _, want := range []string{`Put "` + foreign + `"`, "MemberList", "Watch a watch"} {
		if !slices.ContainsFunc(usage.Denied, func(denied string) bool { return strings.Contains(denied, want) }) {
			t.Errorf("%q is not among the refused: %q", want, usage.Denied)
		}
	}
	if left, err := user.Leases(ctx); err != nil || len(left) != 1 || left[0] < time.Minute {
		t.Errorf("leases %v, %v", left, err)
	}
	if err := user.Full(ctx, true); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, own, "value"); err != rpctypes.ErrNoSpace || user.Usage().NoRoom == 0 {
		t.Errorf("with no room: %v, %+v", err, user.Usage())
	}
	if err := user.Full(ctx, false); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, own, "value"); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := user.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	if found, err := client.Get(ctx, own); err != nil || len(found.Kvs) != 0 {
		t.Errorf("cleared: %v, %v", found, err)
	}
	if left, err := user.Leases(ctx); err != nil || len(left) != 0 {
		t.Errorf("leases after Clear: %v, %v", left, err)
	}
}
