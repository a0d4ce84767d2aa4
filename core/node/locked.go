package node

import (
	"context"
	"errors"

	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/metrics"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/operate"
	"github.com/reeveproject/reeve/core/report"
	"github.com/reeveproject/reeve/core/roles"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// lockedAPI is the node's own API while the volume is not open. It serves the socket only, since the certificate for TCP is on the volume.
type lockedAPI struct {
	status event.Value[*nodev1.Status]
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// Why the API ends, as its calls are told.
var (
	errOpened   = errors.New("the volume of this node was opened, and the whole node goes on from here: ask again")
	errSealed   = errors.New("the volume of this node was sealed: `reeve node unlock` opens it")
	errStopping = errors.New("the core of this node is stopping")
)

// serveLocked begins to answer without the volume.
func (n *node) serveLocked() error {
	l := &lockedAPI{ended: make(chan struct{})}
	locked := report.Locked{Start: n.start, Version: n.config.Version, Lacking: n.lacking, Volume: n.room}
	l.status.Set(locked.Status())
	measured, err := metrics.New(metrics.Config{Log: n.log.Named("metrics"), Status: &l.status, Budget: roles.Budgets(n.config.Parameters.GetSupervision())})
	if err != nil {
		return err
	}
	api, err := nodeapi.New(nodeapi.Config{
		Log: n.log.Named("nodeapi"), Socket: n.socket, Status: &l.status, Identity: new(event.Value[*identity.Identity]),
		Recorder: n.events, Metrics: measured.Text, Storage: operate.Volume{Keys: n.room, Events: n.events}, Locked: locked.Err,
	})
	if err != nil {
		return errors.Join(err, measured.Close())
	}
	var ctx context.Context
	ctx, l.cancel = context.WithCancelCause(context.Background())
	go func() {
		defer close(l.ended)
		endStatus := run(func(ctx context.Context) error { return locked.Run(ctx, &l.status) })
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
