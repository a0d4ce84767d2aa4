package usage_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	"github.com/reeveproject/reeve/plugins/consensus/internal/usage"
)

// TestMembersAgree compares what two members count, the other of which follows while the users write, begins late, and is behind when it is started again.
func TestMembersAgree(t *testing.T) {
	directory := storetest.Directory(t)
	s, _ := storetest.Open(t, directory, storetest.Plan)
	grant(t, s, user("ant"), user("bee"))
	ctx := storetest.Context(t)
	// A request that is lost because the leader changes is made again: that is nothing that it could be spared.
	patiently := func(request func() error) {
		t.Helper()
		var err error
		defer func() {
			if t.Failed() {
				t.Logf("the last request: %v", err)
			}
		}()
		storetest.Eventually(t, "a request is carried out", func() bool { err = request(); return err == nil })
	}
	write := func(from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			patiently(func() error {
				return as{s, []string{"ant", "bee"}[n%2]}.put(ctx, fmt.Sprint(n%40), strings.Repeat("x", n))
			})
		}
		patiently(func() error { return as{s, "ant"}.remove(ctx, "2", "3") })
	}
	write(0, 50)
	second := storetest.Join(t, s, directory)
	for range 2 {
		counting, cancel := context.WithCancel(ctx)
		other, err := usage.Open(ctx, usage.Config{
			Log: storetest.Log(t), KV: second.Etcd().Server.Watchable(), ClusterUser: "curator", Numbers: s.Numbers,
			Leases: func() ([]int64, error) { return nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		group.Go(func() {
			if err := other.Run(counting); err != nil {
				t.Error(err)
			}
		})
		write(50, 150)
		last := s.Server().KV().Rev()
		counted(t, s, last)
		storetest.Eventually(t, "the other member's count", func() bool { return other.Revision() >= last })
		theirs := make(map[string]int64)
		for _, user := range other.Now() {
			theirs[user.ConsensusUser] = user.Bytes
		}
		if ours := checkCount(t, s); !maps.Equal(ours, theirs) {
			t.Errorf("one member counts %v, the other %v", ours, theirs)
		}
		cancel()
		group.Wait()
		second.Stop()
		second.Start()
	}
}
