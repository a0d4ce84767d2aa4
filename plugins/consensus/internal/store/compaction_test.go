package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/reeveproject/reeve/plugins/consensus/internal/store"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestACompactionTakesFewSteps compacts a store with 20,000 small keys that were overwritten once. Each step costs a commit and a pause: with many, more is written meanwhile than a compaction removes.
func TestACompactionTakesFewSteps(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ctx := store.Root(storetest.Context(t))
	const keys, each = 20_000, 125
	for range 2 {
		for first := 0; first < keys; first += each {
			txn := &pb.TxnRequest{}
			for n := range each {
				txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: fmt.Appendf(nil, "/key/%d", first+n)}}})
			}
			patiently(t, ctx, func() error {
				_, err := s.Server().Txn(ctx, txn)
				return err
			})
		}
	}
	before := compactionSteps(t)
	patiently(t, ctx, func() error {
		_, err := s.Client().Compact(ctx, s.Server().KV().Rev())
		if errors.Is(err, rpctypes.ErrCompacted) { // by a try that took too long
			return nil
		}
		return err
	})
	storetest.Eventually(t, "the end of the compaction", func() bool { return !s.Compacting() })
	if steps := compactionSteps(t) - before; steps == 0 || steps > 2*keys/4000 {
		t.Errorf("to compact %d revisions took %d steps", 2*keys, steps)
	}
}

// compactionSteps is how many steps the compactions of this process have taken.
func compactionSteps(t *testing.T) uint64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds" {
			return family.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("etcd does not tell of its compactions")
	return 0
}
