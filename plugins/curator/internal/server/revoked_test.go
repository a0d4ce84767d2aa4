package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/plugins/curator/internal/audit"
	"github.com/reeveproject/reeve/plugins/curator/internal/auth"
	"github.com/reeveproject/reeve/plugins/curator/internal/management"
	"github.com/reeveproject/reeve/plugins/curator/internal/metrics"
	"github.com/reeveproject/reeve/plugins/curator/internal/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

// Somebody who is revoked between being let in and the change makes no change.
func TestRevokedWhileTheCallIsUnderWay(t *testing.T) {
	c := newCluster(t)
	alice := c.addOperator("alice", roleOwner)
	records := store.New(store.Config{Client: c.client(), ClusterUser: "curator", AnswerWithin: patience})
	log := audit.New(audit.Config{Store: records, NodeID: c.id, Log: hclog.NewNullLogger(), Now: time.Now, Counts: metrics.New()})
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		log.Run(running)
	}()
	defer func() {
		stop()
		<-stopped
	}()
	service := management.NewService(management.Config{Store: records, Log: hclog.NewNullLogger(), Now: time.Now})
	guard := auth.NewGuard(auth.GuardConfig{Authenticate: func(context.Context) (auth.Caller, error) {
		return auth.Caller{Kind: clusterv1.Caller_CALLER_OWNER, Person: &auth.Person{
			Operator: "alice", Role: roleOwner, ID: alice.record.GetId(), Session: nil,
		}}, nil
	}})
	rpc := clusterv1.ManagementService_AddRole_FullMethodName
	guard.Enforce(auth.Permissions{rpc: {Callers: []clusterv1.Caller{clusterv1.Caller_CALLER_OWNER}, ByKey: true}})
	add := func(role string, dryRun bool) error {
		request := &clusterv1.AddRoleRequest{NodeId: c.id, Role: role, DryRun: dryRun}
		return log.Do(t.Context(), rpc, request, func(ctx context.Context) error {
			_, err := guard.Unary(ctx, request, &grpc.UnaryServerInfo{FullMethod: rpc}, func(ctx context.Context, _ any) (any, error) {
				return service.AddRole(ctx, request)
			})
			return err
		})
	}
	if err := add("hostsfile", false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.asOwner().RevokeOperator(t.Context(), &clusterv1.RevokeOperatorRequest{Name: "alice"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, add("lighthouse", false), codes.Unauthenticated, "operator alice", "revoked")
	wantCode(t, add("lighthouse", true), codes.Unauthenticated)
	got, err := c.asOwner().GetNode(t.Context(), &clusterv1.GetNodeRequest{NodeId: c.id})
	if err != nil || len(got.GetNode().GetRecord().GetRoles()) != 3 {
		t.Errorf("%v, %v", got, err)
	}
}
