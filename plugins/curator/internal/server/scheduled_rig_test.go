package server_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/reeveproject/reeve/plugins/curator/internal/metrics"
	"github.com/reeveproject/reeve/plugins/curator/internal/server"
	"github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// schedule is a cluster whose node takes snapshots by schedule, with a clock of the test.
type schedule struct {
	*cluster
	t         *testing.T
	clock     atomic.Int64
	member    *others
	taker     *curator
	counted   *metrics.Metrics                  // of the taker
	owner     clusterv1.ManagementServiceClient // at the taker
	directory string
	recipient string
}

func newSchedule(t *testing.T) *schedule {
	s := &schedule{t: t, member: new(others), counted: metrics.New(), directory: t.TempDir()}
	s.clock.Store(time.Now().UnixNano())
	now := func(config *server.Config) { config.Now = func() time.Time { return time.Unix(0, s.clock.Load()) } }
	s.cluster = newClusterOn(t, etcd, func(config *server.Config) {
		generous(config)
		now(config)
	})
	s.member.present = s.good().client(t)
	s.start(now)
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s.recipient = identity.Recipient().String()
	s.runs(s.id)
	s.tell(s.id)
	return s
}

// start starts the curator of the node that takes snapshots.
func (s *schedule) start(change func(*server.Config)) {
	s.taker = start(s.t, etcd, s.prefix, func(config *server.Config) {
		generous(config)
		change(config)
		config.NodeID, config.Snapshots, config.DataDirectory, config.Metrics = s.id, s.member, s.directory, s.counted
	}).ready()
	s.logIn()
}

// logIn proves the owner's key at the taker, by a certificate of the clock.
func (s *schedule) logIn() {
	s.t.Helper()
	certificate, err := identity.SelfSigned(s.cluster.owner, time.Unix(0, s.clock.Load()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.owner = clusterv1.NewManagementServiceClient(s.dial(s.taker, &certificate))
}

// good is a member whose snapshots have the cluster's records.
func (s *schedule) good() *member {
	client := s.client()
	return &member{records: func() map[string]string {
		records := make(map[string]string)
		got, err := client.Get(context.Background(), "", clientv3.WithPrefix())
		if err == nil {
			for _, pair := range got.Kvs {
				records[string(pair.Key)] = string(pair.Value)
			}
		}
		return records
	}}
}

func (s *schedule) set(interval time.Duration, keep uint32, recipient string) error {
	_, err := s.owner.SetPolicy(s.t.Context(), &clusterv1.SetPolicyRequest{Policy: &clusterv1.ClusterPolicy{
		Isolation: clusterv1.IsolationPolicy_ISOLATION_POLICY_BEST_EFFORT, RecoveryRecipient: recipient,
		Snapshots: &clusterv1.SnapshotSchedule{IntervalSeconds: int64(interval / time.Second), Keep: keep},
	}})
	return err
}

// pass has time pass, of which curators learn with the next change.
func (s *schedule) pass(span time.Duration) {
	s.t.Helper()
	s.clock.Add(int64(span))
	s.logIn() // what proved it before ends
	s.runs(s.id)
}

// await waits until the list is as it should be.
func (s *schedule) await(what string, accept func(*clusterv1.ListSnapshotsResponse) bool) *clusterv1.ListSnapshotsResponse {
	s.t.Helper()
	var listed, last *clusterv1.ListSnapshotsResponse
	var err error
	for ctx := inTime(s.t); ctx.Err() == nil; {
		if listed, err = s.owner.ListSnapshots(ctx, &clusterv1.ListSnapshotsRequest{}); err == nil && accept(listed) {
			return listed
		}
		if err == nil {
			last = listed
		}
	}
	s.t.Fatalf("%s: %v, %v", what, last, err)
	return nil
}

func first(listed *clusterv1.ListSnapshotsResponse) *clusterv1.NodeSnapshots {
	if len(listed.GetNodes()) == 0 {
		return nil
	}
	return listed.GetNodes()[0]
}

// ended waits for the end of a task.
func (s *schedule) ended(number uint64) *clusterv1.NodeSnapshots {
	s.t.Helper()
	return first(s.await("the end of a task", func(listed *clusterv1.ListSnapshotsResponse) bool {
		return first(listed).GetEnded().GetNumber() == number
	}))
}

// published waits until the taker shows these values.
func (s *schedule) published(want map[string]string) {
	s.t.Helper()
	var got map[string]string
	if _, err := s.taker.host.values.Wait(inTime(s.t), func(now map[string]string) bool {
		got = now
		return maps.Equal(got, want)
	}); err != nil {
		s.t.Fatalf("it shows %v, want %v: %v", got, want, err)
	}
}
