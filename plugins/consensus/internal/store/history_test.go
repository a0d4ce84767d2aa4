package store_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	get := func(revision int64) (*clientv3.GetResponse, error) {
		return s.Client().Get(ctx, "/key", clientv3.WithRev(revision))
	}
	first := int64(0)
	for range 60 {
		storetest.Eventually(t, "a write", func() bool { // a slow disk may take too long for one
			answer, err := s.Client().Put(ctx, "/key", big)
			if err == nil && first == 0 {
				first = answer.Header.Revision
			}
			return err == nil
		})
		storetest.Eventually(t, "room", func() bool { status, _ := s.Status().Get(); return status.Room == store.RoomForAll })
	}
	storetest.Eventually(t, "the end of the first revision", func() bool {
		_, err := get(first)
		return errors.Is(err, rpctypes.ErrCompacted)
	})
	// The last ones are there: watchers may have been away for a moment.
	patiently(t, ctx, func() error {
		answer, err := get(0)
		if err == nil {
			_, err = get(answer.Header.Revision - 2)
		}
		return err
	})
	if size := s.Server().Backend().Size(); size > config.Quota {
		t.Errorf("the database has %d bytes", size)
	}
}
