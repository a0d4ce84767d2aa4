package store_test

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

type keyValue = mvccpb.KeyValue

var clientPrefix = clientv3.WithPrefix()

// TestHistoryIsBoundedByItsBytes overwrites one key until that is many times what the store may have, which has room all the time.
func TestHistoryIsBoundedByItsBytes(t *testing.T) {
	config := storetest.Small(t, storetest.Directory(t))
	config.Quota = 4 * store.MinQuota
	s, _ := storetest.OpenWith(t, config, storetest.Plan)
	ctx := store.Root(storetest.Context(t))
	first := int64(0)
	for n := range 60 {
		answer, err := s.Client().Put(ctx, "/key", big)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = answer.Header.Revision
		}
		storetest.Eventually(t, "room", func() bool { status, _ := s.Status().Get(); return status.Room == store.RoomForAll })
	}
	storetest.Eventually(t, "the end of the first revision", func() bool {
		_, err := s.Client().Get(ctx, "/key", clientv3.WithRev(first))
		return err != nil
	})
	// The last ones are there: watchers may have been away for a moment.
	answer, err := s.Client().Get(ctx, "/key")
	if err == nil {
		_, err = s.Client().Get(ctx, "/key", clientv3.WithRev(answer.Header.Revision-2))
	}
	if err != nil {
		t.Errorf("the revision before the last one: %v", err)
	}
	if size := s.Server().Backend().Size(); size > config.Quota {
		t.Errorf("the database has %d bytes", size)
	}
}
