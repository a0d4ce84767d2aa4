package service_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

func usageOf(status *consensusv1.StoreStatus, user string) *consensusv1.UserUsage {
	for _, usage := range status.GetUsage() {
		if usage.ConsensusUser == user {
			return usage
		}
	}
	return nil
}

// TestUsageAndRevocation shows what a user has to the core and among the metrics, and then withdraws the user while the core does nothing: it reads no
// status any more, gives no set, and calls nothing.
func TestUsageAndRevocation(t *testing.T) {
	p := start(t, storetest.Directory(t))
	ctx := storetest.Context(t)
	if _, err := p.Form(ctx, formNew()); err != nil {
		t.Fatal(err)
	}
	f := follow(t, p)
	curator, lighthouse := p.instance(t, "curator.1", "curator"), p.instance(t, "lighthouse.1", "lighthouse")
	set := &consensusv1.SetAccessRequest{CoreStart: 7, Number: 1, Instances: []*consensusv1.AccessInstance{curator, lighthouse}}
	if _, err := p.SetAccess(ctx, set); err != nil {
		t.Fatal(err)
	}
	open := func(instance *consensusv1.AccessInstance) func(*consensusv1.StoreStatus) bool {
		return func(s *consensusv1.StoreStatus) bool {
			return state(s, instance) == consensusv1.AccessState_ACCESS_STATE_OPEN
		}
	}
	f.until("the cluster API's access", open(curator))
	grant(t, curator, "lighthouse")
	f.until("the role's access", open(lighthouse))
	const key = "/reeve/users/lighthouse/key"
	client := storetest.Dial(t, lighthouse.Socket)
	if _, err := client.Put(ctx, key, strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	now := f.until("what the user has", func(s *consensusv1.StoreStatus) bool {
		return usageOf(s, "lighthouse").GetBytes() == int64(1000+len(key))
	})
	if usage := usageOf(now, "lighthouse"); usage.BytesQuota != 256<<20 || usage.LeasesQuota != 1000 {
		t.Errorf("by default a user may have %v", usage)
	}
	if usage := usageOf(now, "curator"); usage.GetBytes() == 0 || usage.BytesQuota != 0 || usage.LeasesQuota != 0 {
		t.Errorf("the cluster user has %v", usage)
	}
	var metrics bytes.Buffer
	if err := p.service.WriteMetrics(ctx, &metrics); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`reeve_consensus_user_bytes{consensus_user="lighthouse"} 1027`, `reeve_consensus_user_bytes_quota{consensus_user="lighthouse"} 2.68435456e+08`,
		`reeve_consensus_user_leases{consensus_user="lighthouse"} 0`, `reeve_consensus_user_leases_quota{consensus_user="lighthouse"} 1000`,
		`reeve_consensus_user_refused_total{consensus_user="curator"} 0`,
	} {
		if !strings.Contains(metrics.String(), want+"\n") {
			t.Errorf("no %s", want)
		}
	}

	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(client.ActiveConnection()).Watch(watching)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)}}}); err != nil {
		t.Fatal(err)
	}
	if created, err := stream.Recv(); err != nil || created.Canceled {
		t.Fatalf("no watch: %v, %v", created, err)
	}
	// The core's streams stay open and are not read.
	began := time.Now()
	grant(t, curator)
	for {
		if _, err := stream.Recv(); err != nil {
			break
		}
	}
	t.Logf("the watch ended %s after the grant was withdrawn", time.Since(began))
	if watching.Err() != nil {
		t.Fatal("the watch goes on")
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := client.Get(short, key); err == nil {
		t.Error("a withdrawn user still reads")
	}
}
