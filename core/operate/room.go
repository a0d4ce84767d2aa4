package operate

import (
	"context"
	"crypto/ed25519"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/plugin"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Room does what operators ask of the node's roles. Its errors are gRPC statuses, *roles.NotDesiredError or roles.ErrStopping.
type Room struct {
	// Launcher checks the process that is to be debugged.
	Launcher *plugin.Launcher
	Roles    interface {
		Restart(ctx context.Context, role string, dryRun bool) (instanceID string, err error)
		Debug(ctx context.Context, found *plugin.Debugged, dryRun bool) (instanceID string, err error)
		EndDebug(role, instanceID, why string) error
	}
	// Release lets a role run again that was stopped because it filled the disk.
	Release func(role string) bool

	// AllowDebug says that the parameters allow debugging. Policy is the cluster's as the node kept it; the View has a newer one.
	AllowDebug bool
	Policy     *clusterv1.ClusterPolicy

	Desired      *event.Value[roles.Desired]
	Instances    *event.Value[roles.Instances]
	Capabilities *event.Value[roles.Capabilities]
	Store        *event.Value[*consensusv1.StoreStatus]
	View         *event.Value[*cluster.View]
}

// Restart restarts a role, whatever keeps it from running.
func (r *Room) Restart(ctx context.Context, role string, dryRun bool) (instanceID string, err error) {
	instanceID, err = r.Roles.Restart(ctx, role, dryRun)
	if err == nil && !dryRun {
		r.Release(role)
	}
	return instanceID, err
}

// recoverTimeout bounds the recovery of a store. Defragmenting rewrites its content, which may be some gigabytes.
const recoverTimeout = 10 * time.Minute

// RecoverStore makes the store give back the space that it does not need, and returns its size before and after. With dryRun it only returns the sizes.
func (r *Room) RecoverStore(ctx context.Context, dryRun bool) (before, after int64, err error) {
	provider, err := r.provider(roles.CapabilityConsensus, "the consensus store")
	if err != nil {
		return 0, 0, err
	}
	if dryRun {
		now, _ := r.Store.Get()
		return now.GetDatabaseSize(), now.GetDatabaseInUse(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	response, err := consensusv1.NewConsensusServiceClient(provider.Conn).Recover(ctx, &consensusv1.RecoverRequest{})
	return response.GetSizeBefore(), response.GetSizeAfter(), err
}

// ownerTimeout bounds the replacement of the owner key, which is one transaction.
const ownerTimeout = 30 * time.Second

// ReplaceOwner makes this node's curator replace the cluster's owner key.
func (r *Room) ReplaceOwner(ctx context.Context, key ed25519.PublicKey, requester string, dryRun bool) (waiting []string, err error) {
	provider, err := r.provider(roles.CapabilityCluster, "the cluster API")
	if err != nil || dryRun {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	response, err := clusterv1.NewBootstrapServiceClient(provider.Conn).ReplaceOwner(ctx, &clusterv1.ReplaceOwnerRequest{OwnerPublicKey: key, Requester: requester})
	return response.GetWaitingNodes(), err
}

// provider returns the instance of this node that provides a capability.
func (r *Room) provider(capability, what string) (roles.Provider, error) {
	capabilities, _ := r.Capabilities.Get()
	provider, ok := capabilities[capability]
	if !ok {
		return provider, status.Errorf(codes.Unavailable, "no role of this node provides %s (%s) at present: `reeve status` shows the roles of the node", what, capability)
	}
	return provider, nil
}
