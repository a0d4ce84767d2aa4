package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reeveproject/reeve/core/catalog"
	"github.com/reeveproject/reeve/core/events"
	"github.com/reeveproject/reeve/core/footprint"
	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/operate"
	"github.com/reeveproject/reeve/core/report"
)

var (
	// errEnded ends the group of rooms once all roles were stopped, or left, as asked.
	errEnded = errors.New("node: the roles have ended")
	// errSeal and errDisowned stop the roles: somebody has the node sealed, or the cluster has removed it.
	errSeal     = errors.New("node: the node is sealed")
	errDisowned = errors.New("node: the node was removed from its cluster")
)

// idleTimeout bounds the wait for calls of the API that still use the volume after all rooms have ended. The API cuts them off before that.
const idleTimeout = 10 * time.Second

// run runs the rooms, and ends them in order: the roles, while everything that they may still need is there; the rooms; the API's calls that read the volume; the
// journal; and the volume, if the node is sealed. The call that asked for it is answered only then, so the API ends last.
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
		w.log.Warn("calls of the node's API do not end and may keep the volume in use")
	}
	// A caller that asks from now on is too late.
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
		// The volume must not stay open, whatever else went wrong.
		if err != nil {
			w.log.Error("sealing the node goes on after an error", "error", err)
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

// runRoles runs the roles until they must end, and reports whether they go on without the core. It always returns an error. If another room fails, the roles run on
// for the next core (decision 0077).
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
	// Also after an error: one that ends with the core could not be stopped, and the others run on the open volume.
	if left = errors.Is(context.Cause(rolesCtx), ErrLeave); left {
		w.host.Leave()
		w.log.Info("the roles run on without a core")
	}
	return left, cmp.Or(err, errEnded)
}

// begin begins all rooms but the roles and the API. ctx ends when the core is asked to stop, groupCtx when the rooms end.
func (w *whole) begin(ctx, groupCtx context.Context, group *errgroup.Group) {
	held := w.node.storage
	// These cannot fail.
	for _, room := range []func(context.Context){
		w.operate.Run,
		func(ctx context.Context) { w.node.room.Follow(ctx, w.client.View()) },
		func(ctx context.Context) { catalog.VerifyAhead(ctx, w.reconciler.Instances(), w.plugins.store.Ahead) },
		func(ctx context.Context) {
			catalog.FollowStore(ctx, w.client.View(), w.client.Contact(), w.reconciler.Instances(), &w.storeLeft)
		},
		catalog.Chooser{
			Log: w.log.Named("desired"), Path: w.kept.Path, Known: w.kept.First, Committed: &w.kept.Committed, Phase: w.member.Phase(), Membership: w.member.Status(),
			Problem: w.member.Problem(), View: w.client.View(), Full: w.guard.Full(), Imported: &w.plugins.imported, Missing: w.plugins.launcher.Missing,
			Desired: &w.desired,
		}.Run,
		catalog.Wiper{
			Log: w.log.Named("wiper"), Layout: held.Layout, View: w.client.View(), Instances: w.reconciler.Instances(),
			Bar: w.reconciler.Bar, Unbar: w.reconciler.Unbar, Events: w.recorder,
		}.Run,
		catalog.Collector{
			Log: w.log.Named("executables"), Path: held.Executables(), Desired: &w.desired, Instances: w.reconciler.Instances(), View: w.client.View(),
			Known: w.kept.Plugins(), Genesis: w.kept.Built != nil, Collect: w.plugins.store.Collect, Now: time.Now,
		}.Run,
		func(ctx context.Context) {
			w.report.Run(ctx, report.Sources{
				Start: w.start, Version: w.node.config.Version, Lacking: w.node.lacking, Volume: string(w.opened.Configuration.VolumeKind), APIAddress: w.api.Listening(),
				Isolation: w.plugins.isolation(), Missing: w.plugins.missing(), Addresses: w.net.Addresses(), Instances: w.reconciler.Instances(),
				Membership: w.member.Status(), Identity: w.ids.Identity(), Curators: w.client.Curators(), LocalCurator: w.client.LocalCurator(), View: w.client.View(), Store: w.doors.Store(),
				Storage: w.node.room.Status(), APIProblem: w.api.Problem(), MetricsProblem: w.measured.Problem(), DiskProblem: w.prober.Problem(), NetworkProblem: w.net.Problem(),
			})
		},
		w.rest,
		w.followRestore,
		w.keepRoles,
	} {
		group.Go(func() error {
			room(groupCtx)
			return nil
		})
	}
	for _, room := range []func(context.Context) error{
		func(groupCtx context.Context) error {
			// CoreStopping is recorded when the core is asked to stop, not when its rooms end.
			asked, cancel := context.WithCancel(groupCtx)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return events.Follow(asked, w.recorder, events.Sources{
				Version: w.node.config.Version, Membership: w.member.Status(), Store: w.doors.Store(), Addresses: w.net.Addresses(),
				Reopened: !w.first, Sealed: func() bool { return ctx.Err() == nil && w.sealing.By() != "" },
			})
		},
		func(ctx context.Context) error {
			return w.measured.Run(ctx, w.reconciler.Instances(), w.reconciler.Capabilities())
		},
		func(ctx context.Context) error { return w.ids.Run(ctx, w.member.Credentials(), w.client.Credentials()) },
		w.net.Run, w.member.Run, w.doors.Run, w.client.Run, w.guard.Run, w.prober.Run, w.watchClock, w.node.beside,
	} {
		if room != nil {
			group.Go(func() error { return room(groupCtx) })
		}
	}
}

// watchClock tells other rooms when the clock is set. Without it they look at the time of day every minute.
func (w *whole) watchClock(ctx context.Context) error {
	if err := w.clock.Run(ctx); err != nil {
		w.log.Warn("cannot watch whether the clock is set; the node notices it within a minute", "error", err)
	}
	return nil
}

// run runs a room that cannot fail, until end is called.
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

// restAfter is the time from the first contact to the cluster until the roles are started and everything is reported.
const restAfter = 10 * time.Second

// rest returns, once, the memory that only the start needed.
func (w *whole) rest(ctx context.Context) {
	if _, err := membership.GetHome(ctx, w.member.Status()); err != nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(restAfter):
		if err := footprint.GiveBack(); err != nil {
			w.log.Warn("cannot give back the memory that only the start needed", "error", err)
		}
	}
}
