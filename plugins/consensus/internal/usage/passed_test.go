package usage_test

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// TestMutexesPassFewKeys: who has many keys may take mutexes, whose prefix has few, in transactions that write.
func TestMutexesPassFewKeys(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	kv := s.Server().KV()
	const keys, perVisit = 20_000, 64
	write := kv.Write(traceutil.TODO())
	for n := range keys {
		write.Put(fmt.Appendf(nil, "/reeve/users/ant/n/%05d", n), nil, lease.NoLease)
	}
	write.Put([]byte("/reeve/users/ant/lock/1"), nil, lease.NoLease)
	write.End()
	of := func(prefix string, times int) *pb.TxnRequest {
		txn := new(pb.TxnRequest)
		for range times {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{
				Key: []byte("/reeve/users/ant/" + prefix + "/"), RangeEnd: []byte("/reeve/users/ant/" + prefix + "0"), Limit: 1,
			}}})
		}
		return txn
	}
	for name, test := range map[string]struct {
		request *pb.TxnRequest
		want    int64
	}{
		"a mutex":          {of("lock", 2), 2 * perVisit},
		"many keys":        {of("n", 2), 2 * perVisit * (keys + 1)},
		"a mutex, by many": {of("lock", 100), 100 * perVisit * (keys + 1)}, // to look at so many would cost as much as they do
	} {
		if got, err := usage.Passed(storetest.Context(t), kv, "ant", keys+1, test.request); err != nil || got != test.want {
			t.Errorf("%s counts %d bytes, want %d: %v", name, got, test.want, err)
		}
	}
	remove := &pb.DeleteRangeRequest{Key: []byte("/reeve/users/ant/n/"), RangeEnd: []byte("/reeve/users/ant/n0")}
	if got := usage.PassedByDeletes("ant", keys, remove); got != keys*perVisit {
		t.Errorf("a removal passes %d bytes of what was removed before", got)
	}
	if got := usage.PassedByDeletes("bee", keys, remove); got != 0 {
		t.Errorf("a removal of another's keys passes %d bytes", got)
	}
}
