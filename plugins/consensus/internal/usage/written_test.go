package usage_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// TestAWriteCountsWhatItLeavesOnTheDisk writes the smallest values there are, one at a time and many at once: neither the log nor the database may grow by more than is counted.
func TestAWriteCountsWhatItLeavesOnTheDisk(t *testing.T) {
	s, _ := storetest.Open(t, storetest.Directory(t), storetest.Plan)
	ant := as{s, "ant"}
	if err := s.EnsureUser(storetest.Context(t), ant.user); err != nil {
		t.Fatal(err)
	}
	for _, writers := range []int{1, 32} {
		const each = 64
		database := s.Server().Backend()
		database.ForceCommit()
		log, stored, counted := logged(t), database.SizeInUse(), int64(0)
		var group sync.WaitGroup
		for writer := range writers {
			for n := range each {
				counted += usage.Written(&pb.PutRequest{Key: []byte(fmt.Sprintf("%s%d/%d", consensusv1.UserPrefix(ant.user), writer, n))})
			}
			group.Go(func() {
				for n := range each {
					if err := ant.put(t.Context(), fmt.Sprintf("%d/%d", writer, n), ""); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		database.ForceCommit()
		if grown := logged(t) - log; grown > counted {
			t.Errorf("%d at once: the log grew by %d bytes, and %d were counted", writers, grown, counted)
		}
		if grown := database.SizeInUse() - stored; writers > 1 && grown > counted {
			t.Errorf("%d at once: the database grew by %d bytes, and %d were counted", writers, grown, counted)
		}
	}
}

// logged is how many bytes all logs of this process have been given.
func logged(t *testing.T) int64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "etcd_disk_wal_write_bytes_total" {
			return int64(family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("etcd does not say how many bytes its log was given")
	return 0
}
