package node

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/operate"
	"github.com/reeveproject/reeve/core/report"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	"github.com/reeveproject/reeve/core/storage"
	"github.com/reeveproject/reeve/core/storage/volume"
	"github.com/reeveproject/reeve/core/unseal"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what a node starts from.
type Config struct {
	Log        hclog.Logger
	Parameters *nodev1.Parameters
	// Version is the version of this program.
	Version string
}

// ErrLeave, as the cause of the end of Run's context, has Run leave the roles running for the core that comes next, but for those that end with
// their core. The volume stays open, since they run on it.
var ErrLeave = roles.ErrLeave

// Run runs a node until the context ends, then stops its roles, closes its volume and returns nil; it leaves them running, and the volume open, if the cause is
// ErrLeave. It returns an error if the node cannot go on or cannot start, whose roles run on in both cases, or
// if the volume cannot be closed, which names who uses it.
func Run(ctx context.Context, config Config) (err error) {
	start := time.Now()
	layout, err := unseal.LayoutOf(config.Parameters)
	if err != nil {
		return err
	}
	held, err := storage.Open(layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	room, err := unseal.New(unseal.Config{Log: config.Log.Named("storage"), Storage: held, Parameters: config.Parameters})
	if err != nil {
		return err
	}
	n := &node{config: config, log: config.Log, start: start, storage: held, room: room, events: new(events.Relay)}
	return n.run(ctx)
}

// node is a node from the start of its core to the end.
type node struct {
	config  Config
	log     hclog.Logger
	start   time.Time
	storage *storage.Storage
	room    storageRoom
	// socket is served by the whole node, and by locked before it.
	socket *nodeapi.Socket
	// events takes what happens, whether the volume with the journal is open or not.
	events *events.Relay
	// locked is the API while the volume is not open; nil: none is served.
	locked *lockedAPI
	// beside is one more room, as tests have it; nil: there is none.
	beside func(context.Context) error
}

// storageRoom is the volume and its keys, as *unseal.Room has them.
type storageRoom interface {
	operate.Keys
	NodeID() string
	Open(ctx context.Context) (*unseal.Opened, error)
	Close(ctx context.Context, sealed bool) error
	Update(ctx context.Context, change func(*seal.Configuration)) error
	RenewTicket(ctx context.Context, opened *unseal.Opened) error
	Follow(ctx context.Context, view *event.Value[*cluster.View])
	Raise() (*clusterv1.Incarnation, error)
	Incarnation() *event.Value[*clusterv1.Incarnation]
	UseTicket(use func(secret []byte) error) error
	UseCUK(use func(cuk []byte) error) error
	Disown(reason string) error
	Disowned() *unseal.Disowned
	Wipe(ctx context.Context) error
}

// run is the life of a node: its volume is opened, the whole node runs, the volume is closed. Where it was closed since somebody asked for it, that begins
// again as soon as somebody opens it. One that its cluster has removed does nothing any more but say so.
func (n *node) run(ctx context.Context) (err error) {
	if n.socket, err = nodeapi.Listen(n.storage.NodeSocket()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.socket.Close()) }()
	defer func() { n.unlocked(errStopping) }()
	for first := true; ; first = false {
		if removed := n.room.Disowned(); removed != nil {
			return n.disowned(ctx, removed)
		}
		opened, err := n.open(ctx)
		if errors.Is(err, unseal.ErrDisowned) {
			continue
		}
		if err != nil {
			// What Open could not do it has left as it was.
			return unlessStopped(ctx, err)
		}
		ended, err := n.operate(ctx, opened, first)
		switch {
		case ended == rolesRunOn:
			return err
		case ended == rolesStopped:
			return errors.Join(err, n.close(ctx, false))
		case ended == wasSealed && err != nil:
			err = n.closeAfterAll(ctx, err)
		case ended == wasDisowned && err != nil:
			n.log.Error("while the node was being removed from its cluster", "error", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

const (
	// openPatience is how long the volume may take to be opened before the node answers without it: a plain one, and one whose keys are there, takes less.
	openPatience = time.Second
	// closeTimeout is how long closing the volume may take, writing back what is in memory included.
	closeTimeout = 2 * time.Minute
	// closeGrace is how long what the roles have left may take to be gone: the kernel takes down the mounts of a process that has ended a moment later.
	closeGrace = 5 * time.Second
	// closeAgain is how often a volume is closed again that was in use.
	closeAgain = 200 * time.Millisecond
)

// open opens the volume. While that takes long, or waits for a key, the node says so on its socket, and goes on saying so until the whole node answers there.
func (n *node) open(ctx context.Context) (*unseal.Opened, error) {
	openCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var opened *unseal.Opened
	done := make(chan error, 1)
	go func() {
		var err error
		opened, err = n.room.Open(openCtx)
		done <- err
	}()
	patience := time.NewTimer(openPatience)
	defer patience.Stop()
	status := n.room.Status().Watch()
	for {
		answer := false
		select {
		case err := <-done:
			return opened, err
		case <-patience.C:
			answer = true
		case <-status.Changed():
			now, _ := status.Latest()
			answer = report.Waits(now)
		}
		if !answer || n.locked != nil {
			continue
		}
		if err := n.serveLocked(); err != nil {
			cancel()
			return nil, errors.Join(err, n.notOpened(ctx, <-done))
		}
	}
}

// notOpened goes on where the volume is not to be opened any more, and Open has ended with err: nil if that was too late to keep it from opening the volume, which
// is closed again then, unless there are roles of an earlier core on it.
func (n *node) notOpened(ctx context.Context, err error) error {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled, errors.As(err, &exit) && exit.ExitCode() < 0:
		return nil // broken off: a call, or a child that was killed
	case err != nil:
		return err
	}
	if left, err := anyRecords(n.storage.Layout); left || err != nil {
		return err
	}
	return n.close(ctx, false)
}

// close closes the volume, on which no role runs any more.
func (n *node) close(ctx context.Context, sealed bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for begun := time.Now(); ; {
		err := n.room.Close(ctx, sealed)
		var busy *volume.BusyError
		if err == nil || !errors.As(err, &busy) || time.Since(begun) > closeGrace {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(closeAgain):
		}
	}
}

// closeAfterAll closes a volume that is to be sealed and could not be when that was tried, since somebody has used it, say: as soon as it can be. Until then
// nobody opens it.
func (n *node) closeAfterAll(ctx context.Context, err error) error {
	for err != nil {
		n.log.Error("the volume is to be sealed and cannot be closed; it is tried again", "error", err, "again", closeGrace)
		if n.locked == nil {
			if locked := n.serveLocked(); locked != nil {
				return errors.Join(err, locked)
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(closeGrace):
		}
		err = n.close(ctx, true)
	}
	return nil
}

// unlessStopped returns err, unless the context has ended: then nothing is wrong, the node was stopped while it started.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
