package histories_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reeveproject/reeve/e2e/internal/devcluster"
	"github.com/reeveproject/reeve/e2e/internal/eventually"
	"github.com/reeveproject/reeve/e2e/internal/soak"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// callers is how many clients call while leaders are killed, and callWithin is how long each waits for an answer: for longer than any election takes.
	callers    = 4
	callWithin = time.Minute
	// fewKills and manyKills is how many leaders are killed, in the gate and in soak.
	fewKills  = 3
	manyKills = 50
	// between is how many calls each client has answered before the next leader is killed.
	between = 10
)

// TestLeadersKilled kills one leader of the store after another under calls of clients that fail over as the command line does. No call fails.
func TestLeadersKilled(t *testing.T) {
	kills := fewKills
	if soak.Enabled {
		kills = manyKills
	}
	s := newScene(t, shared.OrdinaryCluster(t), kills+manyRuns)
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer calling.Wait()
	defer cancel()
	var answered [callers]atomic.Int64
	status, _ := s.nodes[0].status.Get()
	for n := range callers {
		way := newAccess(t, fmt.Sprintf("client %d", n+1), status.GetCluster(), devcluster.ReadKey(t, s.cluster.Path("owner.key")), s.anyCurator.known()...)
		way.follow(ctx, &calling, s.nodes...)
		calling.Go(func() {
			defer func() { _ = way.conn.Close() }()
			for made := 0; ctx.Err() == nil; made++ {
				began := time.Now()
				// Not that of the test: what has begun is brought to its end.
				call, end := context.WithTimeout(context.WithoutCancel(ctx), callWithin)
				what, err := s.callOne(call, way.api, n, made)
				end()
				if err != nil {
					t.Errorf("%s: %s failed after %v: %v", way.name, what, time.Since(began).Round(time.Millisecond), err)
				}
				answered[n].Add(1)
			}
		})
	}
	for kill := range kills {
		var seen [callers]int64
		for n := range callers {
			seen[n] = answered[n].Load()
		}
		eventually.True(t, patience, "every client is answered", func() (bool, string) {
			for n := range callers {
				if got := answered[n].Load() - seen[n]; got < between {
					return false, fmt.Sprintf("client %d has %d answers after %d kills", n+1, got, kill)
				}
			}
			return true, ""
		})
		leader := s.leader(t)
		t.Logf("kill %d: the consensus role of node %d", kill+1, leader.number)
		s.killMember(t, leader)()
		s.settle(t)
	}
	cancel()
	calling.Wait()
	s.cluster.Down(t)
}

// callOne makes one call after another, of every kind that a retry may hide the death of a leader from, and says which it was.
func (s *scene) callOne(ctx context.Context, api clusterv1.ManagementServiceClient, client, made int) (what string, err error) {
	id := s.nodes[made%len(s.nodes)].id
	switch made % 5 {
	case 0, 1:
		what = "a label"
		_, err = api.SetLabels(ctx, &clusterv1.SetLabelsRequest{NodeId: id, Labels: map[string]string{fmt.Sprintf("client-%d", client): fmt.Sprint(made)}})
	case 2:
		what = "a node"
		_, err = api.GetNode(ctx, &clusterv1.GetNodeRequest{NodeId: id})
	case 3:
		what = "the audit log"
		_, err = api.ListAudit(ctx, &clusterv1.ListAuditRequest{})
	default:
		what = "a ticket"
		var made *clusterv1.CreateTicketResponse
		if made, err = api.CreateTicket(ctx, &clusterv1.CreateTicketRequest{}); err == nil {
			what = "the end of a ticket"
			_, err = api.RevokeTicket(ctx, &clusterv1.RevokeTicketRequest{TicketId: made.GetTicket().GetId()})
		}
	}
	return what, err
}
