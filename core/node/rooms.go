package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/footprint"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/operate"
	"github.com/reeveproject/reeve/core/report"
	"github.com/reeveproject/reeve/sdk/event"
)

// errEnded ends the group of rooms when all roles have been stopped, or left, as asked; errSeal is why they are if somebody has the node sealed.
var (
	errEnded = errors.New("node: the roles have ended")
	errSeal  = errors.New("node: the node is sealed")
	// errDisowned is why they are if the cluster has removed the node.
	errDisowned = errors.New("node: the node was removed from its cluster")
)

// idleTimeout is how long calls of the API may keep the volume in use after all rooms have ended: they are cut off before that.
const idleTimeout = 10 * time.Second

// run runs the rooms, and ends them in order: the roles, while everything that they may still need is there; the rooms; what the API reads on the volume; the
// journal; and, if the node is sealed, the volume itself. Who asked for that has the answer only then, so the API is the last to end.
func (w *whole) run(ctx context.Context, release func() error) (ended end, err error) {
	group, groupCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	apiCtx, endAPI := context.WithCancelCause(context.Background())
	apiEnded, apiErr := make(chan struct{}), error(nil)
	go func() {
		defer close(apiEnded)
		apiErr = w.api.Run(apiCtx)
	}()
	group.Go(func() error {
		select {
		case <-groupCtx.Done():
			return nil
		case <-apiEnded:
			return apiErr
		}
	})
	w.begin(ctx, groupCtx, group)
	left := false
	group.Go(func() (err error) {
		left, err = w.runRoles(ctx, groupCtx)
		return err
	})
	if err = group.Wait(); errors.Is(err, errEnded) {
		err = nil
	}

	why := errStopping
	if w.sealing.By() != "" {
		why = errSealed
	}
	endAPI(why)
	select {
	case <-w.api.Idle():
	case <-time.After(idleTimeout):
		w.log.Warn("calls of the node's API do not end, and may keep the volume in use")
	}
	// Who asks from now on comes too late.
	by := w.sealing.By()
	ended, result := rolesStopped, operate.ErrNotSealed
	switch {
	case left:
		ended = rolesRunOn
	case by != "":
		ended = wasSealed
		w.recorder.Record(operate.SealedBy(by))
	case w.node.room.Disowned() != nil:
		ended = wasDisowned
	}
	err = errors.Join(err, release())
	if ended == wasSealed {
		// Whatever else went wrong, the volume is not to lie open.
		if err != nil {
			w.log.Error("while the node was being sealed", "error", err)
		}
		err = w.node.close(ctx, true)
		result = err
	}
	w.sealing.Answer(result)
	<-apiEnded
	if err == nil {
		w.log.Info("stopped", "sealed", ended == wasSealed)
	}
	return ended, err
}

// runRoles runs the roles until they are to end, and reports whether they go on without the core. It always returns an error. If another room fails, which is no fault of theirs, they run on for the
// core that comes next.
func (w *whole) runRoles(ctx, groupCtx context.Context) (left bool, err error) {
	rolesCtx, cancel := context.WithCancelCause(context.WithoutCancel(groupCtx))
	defer cancel(nil)
	defer context.AfterFunc(groupCtx, func() { cancel(fmt.Errorf("%w: %w", ErrLeave, context.Cause(groupCtx))) })()
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	defer context.AfterFunc(w.sealing.Asked, func() { cancel(errSeal) })()
	go func() {
		if _, err := w.member.Status().Wait(rolesCtx, func(s membership.Status) bool { return s.State == membership.Disowning }); err == nil {
			cancel(errDisowned)
		}
	}()
	err = w.reconciler.Run(rolesCtx)
	// Also if one of those that end with the core could not be stopped: the others run on their open volume.
	if left = errors.Is(context.Cause(rolesCtx), ErrLeave); left {
		w.host.Leave()
		w.log.Info("the roles run on without a core")
	}
	return left, cmp.Or(err, errEnded)
}

// begin begins all rooms but the roles and the API.
func (w *whole) begin(ctx, groupCtx context.Context, group *errgroup.Group) {
	storage, configuration := w.base.storage, w.opened.Configuration
	group.Go(func() error {
		// That the core stops is recorded when it is asked to. To be sealed is not to stop, and to be opened again not to start.
		asked, cancel := context.WithCancel(groupCtx)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return events.Follow(asked, w.recorder, events.Sources{
			Version: w.node.config.Version, Membership: w.member.Status(), Store: w.doors.Store(), Addresses: w.net.Addresses(),
			Reopened: !w.first, Sealed: func() bool { return ctx.Err() == nil && w.sealing.By() != "" },
		})
	})
	group.Go(func() error {
		return w.measured.Run(groupCtx, w.reconciler.Instances(), w.reconciler.Capabilities())
	})
	group.Go(func() error {
		w.node.room.Follow(groupCtx, w.client.View())
		return nil
	})
	group.Go(func() error {
		w.operate.Run(groupCtx)
		return nil
	})
	group.Go(func() error { return w.net.Run(groupCtx) })
	group.Go(func() error { return w.ids.Run(groupCtx, w.member.Credentials(), w.client.Credentials()) })
	group.Go(func() error { return w.member.Run(groupCtx) })
	group.Go(func() error { return w.doors.Run(groupCtx) })
	group.Go(func() error { return w.client.Run(groupCtx) })
	group.Go(func() error {
		if err := w.clock.Run(groupCtx); err != nil {
			// What depends on the time of day is looked at in time all the same.
			w.log.Warn("that the clock was set is noticed a minute later at most", "error", err)
		}
		return nil
	})
	group.Go(func() error {
		return catalog.Chooser{
			Log: w.log.Named("desired"), Path: w.kept.Path, Known: w.kept.First, Committed: &w.kept.Committed, Phase: w.member.Phase(), Membership: w.member.Status(),
			Problem: w.member.Problem(), View: w.client.View(), Full: w.guard.Full(), Imported: &w.plugins.imported, Missing: w.plugins.missingOf, Desired: &w.desired,
		}.Run(groupCtx)
	})
	group.Go(func() error {
		catalog.VerifyAhead(groupCtx, w.reconciler.Instances(), w.plugins.store.Ahead)
		return nil
	})
	group.Go(func() error { return w.guard.Run(groupCtx) })
	group.Go(func() error {
		catalog.FollowStore(groupCtx, w.client.View(), w.client.Contact(), w.reconciler.Instances(), &w.storeLeft)
		return nil
	})
	group.Go(func() error {
		catalog.Wiper{
			Log: w.log.Named("wiper"), Layout: storage.Layout, View: w.client.View(), Instances: w.reconciler.Instances(),
			Bar: w.reconciler.Bar, Unbar: w.reconciler.Unbar, Events: w.recorder,
		}.Run(groupCtx)
		return nil
	})
	group.Go(func() error {
		return catalog.Collector{
			Log: w.log.Named("executables"), Path: storage.Executables(), Desired: &w.desired, Instances: w.reconciler.Instances(), View: w.client.View(),
			Known: w.kept.Plugins(), Genesis: w.kept.Built != nil, Collect: w.plugins.store.Collect, Now: time.Now,
		}.Run(groupCtx)
	})
	group.Go(func() error {
		w.report.Run(groupCtx, report.Sources{
			Start: w.start, Version: w.node.config.Version, Volume: string(configuration.VolumeKind), APIAddress: w.api.Address(),
			Isolation: w.plugins.isolation(), Missing: w.plugins.missing(), Addresses: w.net.Addresses(), Instances: w.reconciler.Instances(),
			Membership: w.member.Status(), Identity: w.ids.Identity(), Curators: w.client.Curators(), View: w.client.View(), Store: w.doors.Store(),
			Storage: w.node.room.Status(), Problem: w.measured.Problem(),
		})
		return nil
	})
	group.Go(func() error {
		rest(groupCtx, w.member.Status(), w.log)
		return nil
	})
	if w.node.beside != nil {
		group.Go(func() error { return w.node.beside(groupCtx) })
	}
}

// run runs a room that never fails until the function that it returns is called.
func run(room func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = room(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// restAfter is how long after its first contact to the cluster a node has come to rest: its roles are started and all is reported.
const restAfter = 10 * time.Second

// rest gives back, once, the memory that only the start needed.
func rest(ctx context.Context, status *event.Value[membership.Status], log hclog.Logger) {
	if _, err := membership.GetHome(ctx, status); err != nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(restAfter):
		if err := footprint.GiveBack(); err != nil {
			log.Warn("memory that only the start needed cannot be given back", "error", err)
		}
	}
}
