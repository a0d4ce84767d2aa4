package node

import (
	"context"
	"crypto/ed25519"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/roles"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// operations are what the node's own API does through the roles of the node.
type operations struct {
	capabilities *event.Value[roles.Capabilities]
	store        *event.Value[*consensusv1.StoreStatus]
	// restart restarts a role, and release lets one run again that was stopped since it filled the disk.
	restart func(ctx context.Context, role string, dryRun bool) (instanceID string, err error)
	release func(role string) bool
}

// restartRole restarts a role for an operator, whatever keeps it from running.
func (o operations) restartRole(ctx context.Context, role string, dryRun bool) (instanceID string, err error) {
	instanceID, err = o.restart(ctx, role, dryRun)
	if err == nil && !dryRun {
		o.release(role)
	}
	return instanceID, err
}

// recoverTimeout is how long giving a store its room back may take: defragmenting rewrites all that is in it, which may be some gigabytes.
const recoverTimeout = 10 * time.Minute

// recoverStore has the role that provides the store give a full one its room back. With dryRun it says what that would come to.
func (o operations) recoverStore(ctx context.Context, dryRun bool) (before, after int64, err error) {
	provider, err := o.provider(roles.CapabilityConsensus, "the consensus store")
	if err != nil {
		return 0, 0, err
	}
	if dryRun {
		now, _ := o.store.Get()
		return now.GetDatabaseSize(), now.GetDatabaseInUse(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	response, err := consensusv1.NewConsensusServiceClient(provider.Conn).Recover(ctx, &consensusv1.RecoverRequest{})
	return response.GetSizeBefore(), response.GetSizeAfter(), err
}

// ownerTimeout is how long a curator may take for another owner key: one transaction.
const ownerTimeout = 30 * time.Second

// replaceOwner has the curator of this node put another owner key in the place of the one that there is.
func (o operations) replaceOwner(ctx context.Context, key ed25519.PublicKey, requester string, dryRun bool) (waiting []string, err error) {
	provider, err := o.provider(roles.CapabilityCluster, "the cluster API")
	if err != nil || dryRun {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	response, err := clusterv1.NewBootstrapServiceClient(provider.Conn).ReplaceOwner(ctx, &clusterv1.ReplaceOwnerRequest{OwnerPublicKey: key, Requester: requester})
	return response.GetWaitingNodes(), err
}

// provider returns the instance of this node that provides a capability. Its errors are gRPC statuses for whoever asked.
func (o operations) provider(capability, what string) (roles.Provider, error) {
	capabilities, _ := o.capabilities.Get()
	provider, ok := capabilities[capability]
	if !ok {
		return provider, status.Errorf(codes.Unavailable, "no role of this node provides %s (%s) at present: `reeve status` shows the roles of the node", what, capability)
	}
	return provider, nil
}

// operatorsOf follows whom the cluster lets in, for the node's own API.
func operatorsOf(ctx context.Context, view *event.Value[*cluster.View], operators *event.Value[[]*clusterv1.Operator]) error {
	views := view.Watch()
	for {
		newest, err := views.Next(ctx)
		if err != nil {
			return nil
		}
		operators.Set(newest.Operators)
	}
}

// tellOperators follows whom the cluster lets in, for roles that let them in too. Nothing is told before the node knows of its operators: a role would turn away who is one.
func tellOperators(ctx context.Context, operators *event.Value[[]*clusterv1.Operator], identities *event.Value[*identity.Identity], told *event.Value[*hostv1.Operators]) error {
	changes, owners := operators.Watch(), identities.Watch()
	if _, err := operators.Wait(ctx, func([]*clusterv1.Operator) bool { return true }); err != nil {
		return nil
	}
	for {
		now, _ := changes.Latest()
		message := &hostv1.Operators{}
		if node, _ := owners.Latest(); node != nil && len(node.Owner) > 0 {
			message.OwnerKeyId = names.OwnerKeyID(node.Owner)
		}
		for _, operator := range now {
			message.Operators = append(message.Operators, &hostv1.Operator{
				Name: operator.GetName(), Id: operator.GetId(), Role: hostv1.OperatorRole(operator.GetRole()),
			})
		}
		told.Set(message)
		select {
		case <-ctx.Done():
			return nil
		case <-changes.Changed():
		case <-owners.Changed():
		}
	}
}
