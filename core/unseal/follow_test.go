package unseal_test

import (
	"context"
	"testing"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/storage"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// The room publishes the number of this start, and applies each policy of the cluster. A view without a policy, of an older curator, changes nothing.
func TestFollow(t *testing.T) {
	b := newBench(t, directory(t), storage.Fscrypt, true)
	b.up(t)
	ctx, cancel := context.WithCancel(b.context())
	done := make(chan struct{})
	view := event.New(&cluster.View{Policy: &clusterv1.ClusterPolicy{CukSources: []string{"recovery"}}})
	room := b.room
	go func() {
		defer close(done)
		room.Follow(ctx, view)
	}()
	defer func() {
		cancel()
		<-done
	}()
	if start, err := room.Incarnation().Wait(ctx, func(i *clusterv1.Incarnation) bool { return i != nil }); err != nil || start.GetNumber() != 1 {
		t.Errorf("start %v, %v", start, err)
	}
	off := func(s *clusterv1.StorageStatus) bool {
		return source(s, "tpm").GetState() == clusterv1.CukSourceState_CUK_SOURCE_STATE_OFF
	}
	b.until(t, "the source tpm to be off", off)
	view.Set(&cluster.View{})
	view.Set(&cluster.View{Policy: &clusterv1.ClusterPolicy{}})
	b.until(t, "the source tpm to be allowed", func(s *clusterv1.StorageStatus) bool { return !off(s) })
}
