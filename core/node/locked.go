package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/metrics"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/roles"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// lockedAPI is the node's own API while the volume is not open: on the socket only, since what the node proves itself with over TCP is on the volume.
type lockedAPI struct {
	status event.Value[*nodev1.Status]
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// What ends the API, as its calls are told.
var (
	errOpened   = errors.New("the volume of this node was opened, and the whole node goes on from here: ask again")
	errSealed   = errors.New("the volume of this node was sealed: `reeve node unlock` opens it")
	errStopping = errors.New("the core of this node is stopping")
)

// serveLocked begins to answer without the volume.
func (n *node) serveLocked() error {
	l := &lockedAPI{ended: make(chan struct{})}
	l.status.Set(n.lockedStatus())
	measured, err := metrics.New(metrics.Config{Log: n.log.Named("metrics"), Status: &l.status, Budget: roles.Budgets(n.config.Parameters.GetSupervision())})
	if err != nil {
		return err
	}
	api, err := nodeapi.New(nodeapi.Config{
		Log: n.log.Named("nodeapi"), Socket: n.socket, Status: &l.status, Identity: new(event.Value[*identity.Identity]),
		Recorder: n.events, Metrics: measured.Text, Storage: &volumeCalls{room: n.room, events: n.events}, Locked: n.whyLocked,
	})
	if err != nil {
		return errors.Join(err, measured.Close())
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancelCause(context.Background())
	go func() {
		defer close(l.ended)
		endStatus := run(func(ctx context.Context) error { return n.followLocked(ctx, &l.status) })
		err := errors.Join(api.Run(ctx), measured.Close())
		endStatus()
		if err != nil {
			n.log.Error("the node's API has ended while the volume is not open", "error", err)
		}
	}()
	n.locked = l
	return nil
}

// unlocked ends the API that answers without the volume, if there is one, and returns when its last answer is sent.
func (n *node) unlocked(why error) {
	if n.locked == nil {
		return
	}
	n.locked.cancel(why)
	<-n.locked.ended
	n.locked = nil
}

// followLocked keeps the status up to date.
func (n *node) followLocked(ctx context.Context, status *event.Value[*nodev1.Status]) error {
	storage := n.room.Status().Watch()
	for {
		if _, err := storage.Next(ctx); err != nil {
			return nil
		}
		status.Set(n.lockedStatus())
	}
}

// lockedStatus is the status of a node that knows nothing but its volume.
func (n *node) lockedStatus() *nodev1.Status {
	storage, _ := n.room.Status().Get()
	id := n.room.NodeID()
	member := &hostv1.Membership{
		State: hostv1.MembershipState_MEMBERSHIP_STATE_UNKNOWN, Reason: lockedReason(storage), Since: timestamppb.New(n.start), NodeId: id,
	}
	if removed := n.room.Disowned(); removed != nil {
		member = disownedMembership(removed)
	}
	return &nodev1.Status{
		NodeId:     id,
		Membership: member,
		Node: &clusterv1.NodeStatus{
			NodeId: id, Version: n.config.Version, Volume: storage.GetKind(), Storage: storage, Reported: timestamppb.New(time.Now()), Membership: member,
		},
		CoreStart: n.start.UnixNano(),
		Storage:   storage,
	}
}

// lockedReason says how far the volume is. What keeps it closed is in its status.
func lockedReason(storage *clusterv1.StorageStatus) string {
	reason := "the volume is being opened"
	switch storage.GetState() {
	case clusterv1.StorageState_STORAGE_STATE_LOCKED:
		reason = "the volume is locked, and waits for a key"
	case clusterv1.StorageState_STORAGE_STATE_SEALED:
		reason = "the volume is sealed"
	case clusterv1.StorageState_STORAGE_STATE_CLOSING:
		reason = "the volume is being closed"
	case clusterv1.StorageState_STORAGE_STATE_MAKING:
		reason = "the volume is being made"
	case clusterv1.StorageState_STORAGE_STATE_OPEN:
		reason = "the volume is open, and the roles are about to be started"
	}
	return reason
}

// whyLocked is what calls are told that need the volume.
func (n *node) whyLocked() error {
	if removed := n.room.Disowned(); removed != nil {
		return status.Error(codes.FailedPrecondition, disownedMembership(removed).GetReason())
	}
	storage, _ := n.room.Status().Get()
	reason, problem := lockedReason(storage), storage.GetProblem()
	if problem != "" {
		problem = ": " + problem
	}
	switch {
	case waits(storage):
		if !strings.Contains(problem, "`reeve node unlock`") {
			problem += ": `reeve node unlock` opens it with the owner's recovery key"
		}
		return status.Errorf(codes.FailedPrecondition, "the volume of this node is locked%s; `reeve status` shows what it waits for", problem)
	case storage.GetState() == clusterv1.StorageState_STORAGE_STATE_CLOSING:
		return status.Error(codes.FailedPrecondition, reason+problem+": `reeve status` shows when it is closed")
	}
	return status.Error(codes.Unavailable, fmt.Sprintf("the node is starting (%s%s): try again, `reeve status` shows how far it is", reason, problem))
}
