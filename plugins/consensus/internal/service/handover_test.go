package service_test

import (
	"context"
	"testing"
	"time"

	"github.com/reeveproject/reeve/plugins/consensus/internal/service"
	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// TestStoppingLeaderHandsOver checks that a leader that stops hands its leadership over: the others accept writes before they would have elected a leader by themselves.
func TestStoppingLeaderHandsOver(t *testing.T) {
	const election = 50 * time.Second // the longest that etcd allows
	slow := calm(election)
	patient := func(config *service.Config) { config.Handover = time.Minute } // on a busy machine the others may not answer for seconds
	c := newCluster(t)
	first := c.start("reeve-1", calm(5*time.Second), patient) // it elects itself before it serves
	if err := first.form("new"); err != nil {
		t.Fatal(err)
	}
	client := first.client()
	c.want(client, "reeve-1", "reeve-2", "reeve-3")
	second := c.start("reeve-2", slow)
	second.join()
	c.start("reeve-3", slow).join()
	c.await(client, "all vote", settled("reeve-1", "reeve-2", "reeve-3"))
	other := second.client()
	if _, err := other.Put(storetest.Context(t), "/reeve/users/curator/before", ""); err != nil {
		t.Fatal(err)
	}
	first.stop()
	ctx, cancel := context.WithTimeout(t.Context(), election/2)
	defer cancel()
	if _, err := other.Put(ctx, "/reeve/users/curator/after", ""); err != nil {
		t.Errorf("no write before the others would have elected a leader by themselves, which takes at least %s: %v", election, err)
	}
}
