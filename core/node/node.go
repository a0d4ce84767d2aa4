package node

import (
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/cluster"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/nodeapi"
	"github.com/reeveproject/reeve/core/operate"
	"github.com/reeveproject/reeve/core/params"
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
	// ParametersFile is the file of the parameters; empty: they are from no file.
	ParametersFile string
	// Again lets parameters make a node that already made one.
	Again bool
	// Version is the version of this program.
	Version string
	// Restore is the snapshot of which the node is restored; nil: it is not.
	Restore *Restore
}

// ErrLeave, as the cause of the end of Run's context, makes Run leave the roles running for the next core, except those that end with
// their core. The volume stays open, since they run on it.
var ErrLeave = roles.ErrLeave

// Run runs a node until the context ends, then stops its roles, closes its volume and returns nil. If the cause is ErrLeave, it leaves the roles running and the
// volume open. Run returns an error if the node cannot start or cannot go on, in which case its roles run on, or if it cannot close the volume: the error names
// the processes that use it.
func Run(ctx context.Context, config Config) (err error) {
	start := time.Now()
	lacking, err := checkCapabilities(config.Log)
	if err != nil {
		return err
	}
	layout, err := unseal.LayoutOf(config.Parameters)
	if err != nil {
		return err
	}
	mark := params.OpenMark(config.ParametersFile)
	if !config.Again {
		if err := unseal.CheckMounts(config.Parameters, mark); err != nil {
			return err
		}
	}
	if err := unseal.CheckRestore(config.Parameters, mark, config.Restore.snapshot(), config.Again); err != nil {
		return err
	}
	if unseal.Fresh(layout) && config.Restore.snapshot() == nil {
		if err := catalog.CheckConfigurations(config.Parameters); err != nil {
			return err
		}
	}
	held, err := storage.Open(layout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	room, err := unseal.New(unseal.Config{Log: config.Log.Named("storage"), Storage: held, Parameters: config.Parameters, Mark: mark, Again: config.Again, Restore: config.Restore.snapshot()})
	if err != nil {
		return err
	}
	n := &node{config: config, log: config.Log, start: start, lacking: lacking, storage: held, room: room, events: new(events.Relay)}
	return n.run(ctx)
}

// node is a node from the start of its core to the end.
type node struct {
	config Config
	log    hclog.Logger
	start  time.Time
	// lacking are the capabilities that the core lacks and goes on without.
	lacking []string
	storage *storage.Storage
	room    storageRoom
	// socket is served by locked while the volume is not open, then by the whole node.
	socket *nodeapi.Socket
	// events takes events whether or not the volume with the journal is open.
	events *events.Relay
	// locked is the API while the volume is not open; nil: none is served.
	locked *lockedAPI
	// beside is one more room, for tests; nil: none.
	beside func(context.Context) error
	// probeEvery is that of the volume's prober, for tests; 0: its own.
	probeEvery time.Duration
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

// run is the life of a node: its volume is opened, the whole node runs, the volume is closed. If it was closed because somebody sealed the node, this begins
// again when somebody opens it. A node that its cluster has removed only says so.
func (n *node) run(ctx context.Context) (err error) {
	if n.socket, err = nodeapi.Listen(n.storage.NodeSocket()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.socket.Close()) }()
	defer run(n.keepRun)()
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
			// Open leaves as it was what it could not do.
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
			n.log.Error("erasing what the node has of its former cluster goes on after an error", "error", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

const (
	// openPatience is the time after which the node answers without its volume. Opening takes less if the volume is plain or its keys are there.
	openPatience = time.Second
	// closeTimeout bounds closing the volume, which writes back what is in memory.
	closeTimeout = 2 * time.Minute
	// closeGrace bounds the wait for what ended roles still use: the kernel removes the mounts of a process a moment after its end.
	closeGrace = 5 * time.Second
	// closeAgain is the time between two tries to close a volume in use.
	closeAgain = 200 * time.Millisecond
)

// open opens the volume. If that takes long or waits for a key, the node says so on its socket until the whole node answers there.
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

// notOpened ends a broken off Open that returned err. If Open has opened the volume all the same (err is nil), notOpened closes it, unless roles of an earlier core
// run on it.
func (n *node) notOpened(ctx context.Context, err error) error {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, context.Canceled), status.Code(err) == codes.Canceled, errors.As(err, &exit) && exit.ExitCode() < 0:
		return nil // a call or a child process was broken off
	case err != nil:
		return err
	}
	if left, err := anyRecords(n.storage.Layout); left || err != nil {
		return err
	}
	return n.close(ctx, false)
}

// close closes the volume. No role runs on it any more.
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

// closeAfterAll tries to close a volume to be sealed until it can. err is why it could not be closed so far: a process used it, for example. Nobody can open
// the volume meanwhile.
func (n *node) closeAfterAll(ctx context.Context, err error) error {
	for err != nil {
		n.log.Error("cannot close the volume to seal the node; trying again", "error", err, "again", closeGrace)
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

// unlessStopped returns err, or nil if the context has ended: then the node was stopped while it started, and nothing is wrong.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
