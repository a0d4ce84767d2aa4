package report

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/unseal"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Locked describes a node whose volume is not open.
type Locked struct {
	// Start is when the core started, Version the core's.
	Start   time.Time
	Version string
	// Lacking are the capabilities that the core lacks.
	Lacking []string
	Volume  interface {
		Status() *event.Value[*clusterv1.StorageStatus]
		NodeID() string
		// Disowned says that the cluster has removed the node; nil: it has not.
		Disowned() *unseal.Disowned
	}
}

// Run keeps a status up to date until the context ends.
func (l Locked) Run(ctx context.Context, to *event.Value[*nodev1.Status]) error {
	for range l.Volume.Status().Changes(ctx) {
		to.Set(l.Status())
	}
	return nil
}

// Status returns the status of a node that knows nothing but its volume.
func (l Locked) Status() *nodev1.Status {
	storage, _ := l.Volume.Status().Get()
	id := l.Volume.NodeID()
	member := &hostv1.Membership{
		State: hostv1.MembershipState_MEMBERSHIP_STATE_UNKNOWN, Reason: reasonOf(storage), Since: timestamppb.New(l.Start), NodeId: id,
	}
	if removed := l.Volume.Disowned(); removed != nil {
		member = &hostv1.Membership{
			State: membership.Disowning, Reason: messageOf(removed), Since: timestamppb.New(removed.Since), NodeId: removed.NodeID,
			ClusterId: removed.ClusterID, TrustDomain: names.TrustDomain(removed.ClusterID),
		}
	}
	return &nodev1.Status{
		NodeId:     id,
		Membership: member,
		Node: &clusterv1.NodeStatus{
			NodeId: id, Version: l.Version, Volume: storage.GetKind(), Storage: storage, Reported: timestamppb.Now(), Membership: member,
		},
		CoreStart:           l.Start.UnixNano(),
		Storage:             storage,
		LackingCapabilities: l.Lacking,
	}
}

// Err answers the calls that need the volume.
func (l Locked) Err() error {
	if removed := l.Volume.Disowned(); removed != nil {
		return status.Error(codes.FailedPrecondition, messageOf(removed))
	}
	storage, _ := l.Volume.Status().Get()
	reason, problem := reasonOf(storage), storage.GetProblem()
	if problem != "" {
		problem = ": " + problem
	}
	switch {
	case Waits(storage):
		if !strings.Contains(problem, "`reeve node unlock`") {
			problem += ": `reeve node unlock` opens it with the owner's recovery key"
		}
		return status.Errorf(codes.FailedPrecondition, "the volume of this node is locked%s; `reeve status` shows what it waits for", problem)
	case storage.GetState() == clusterv1.StorageState_STORAGE_STATE_CLOSING:
		return status.Error(codes.FailedPrecondition, reason+problem+": `reeve status` shows when it is closed")
	}
	return status.Errorf(codes.Unavailable, "the node is starting (%s%s): try again, `reeve status` shows how far it is", reason, problem)
}

// Waits reports whether the volume stays closed until somebody does something.
func Waits(storage *clusterv1.StorageStatus) bool {
	state := storage.GetState()
	return state == clusterv1.StorageState_STORAGE_STATE_LOCKED || state == clusterv1.StorageState_STORAGE_STATE_SEALED
}

// reasonOf says how far the volume is. Its status says what keeps it closed.
func reasonOf(storage *clusterv1.StorageStatus) string {
	switch storage.GetState() {
	case clusterv1.StorageState_STORAGE_STATE_LOCKED:
		return "the volume is locked, and waits for a key"
	case clusterv1.StorageState_STORAGE_STATE_SEALED:
		return "the volume is sealed"
	case clusterv1.StorageState_STORAGE_STATE_CLOSING:
		return "the volume is being closed"
	case clusterv1.StorageState_STORAGE_STATE_MAKING:
		return "the volume is being made"
	case clusterv1.StorageState_STORAGE_STATE_OPEN:
		return "the volume is open, and the roles are about to be started"
	}
	return "the volume is being opened"
}

func messageOf(removed *unseal.Disowned) string {
	return (&membership.DisowningError{NodeID: removed.NodeID, ClusterID: removed.ClusterID, Reason: removed.Reason}).Message()
}
