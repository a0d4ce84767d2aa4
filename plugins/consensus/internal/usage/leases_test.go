package usage_test

import (
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/plugins/consensus/internal/numbers"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// TestLeasesAreNotListedForEach grants and revokes all the time: what the store has to list for that does not depend on how often.
func TestLeasesAreNotListedForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const number, quota = 7, 10
		stored := make(map[int64]bool)
		listed, takes := 0, time.Millisecond
		c := usage.Leased(quota, func() (ids []int64, err error) {
			listed++
			time.Sleep(takes)
			for id := range stored {
				ids = append(ids, id)
			}
			return ids, nil
		})
		grant := func() (int64, error) {
			id := numbers.NewLease(number)
			settle, err := c.Admit(t.Context(), "ant", &pb.LeaseGrantRequest{ID: id})
			if err != nil {
				return 0, err
			}
			stored[id] = true
			settle(&pb.LeaseGrantResponse{ID: id}, nil)
			return id, nil
		}
		for n := range 1000 {
			id, err := grant()
			if err != nil {
				t.Fatalf("loop %d: %v", n, err)
			}
			delete(stored, id)
			c.Revoked(id)
			if ids, err := c.Leases(number); err != nil || len(ids) != 0 {
				t.Fatalf("loop %d: the leases are %v, %v", n, ids, err)
			}
		}
		if listed != 1 {
			t.Errorf("all leases were listed %d times", listed)
		}

		// The quota holds, and whoever gives one back may have another at once.
		var last int64
		for range quota {
			var err error
			if last, err = grant(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := grant(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more than the quota: %v", err)
		}
		delete(stored, last)
		c.Revoked(last)
		if _, err := grant(); err != nil {
			t.Errorf("after one was given back: %v", err)
		}
		// Leases run out, and other members grant some: that is seen after a while.
		clear(stored)
		stored[numbers.NewLease(number)] = true
		time.Sleep(time.Second)
		if ids, err := c.Leases(number); err != nil || len(ids) != 1 {
			t.Errorf("the leases are %v, %v", ids, err)
		}
		// Not after minutes, when the machine stood still while they were listed.
		for want := range 3 {
			takes = 10 * time.Second
			stored[numbers.NewLease(number)] = true
			time.Sleep(time.Second)
			if ids, err := c.Leases(number); err != nil || len(ids) != want+2 {
				t.Errorf("after a long list, the leases are %v, %v", ids, err)
			}
		}
	})
}

// TestBeatsCountTheKeys: etcd looks at all keys of a lease for each beat.
func TestBeatsCountTheKeys(t *testing.T) {
	c := usage.Paced(usage.Pace{})
	c.Pretend(1, 2000)
	if none, many := c.Beat(2), c.Beat(1); none != 16<<10 || many != none+2000*512 {
		t.Errorf("a beat counts %d bytes, and with 2000 keys %d", none, many)
	}
}
