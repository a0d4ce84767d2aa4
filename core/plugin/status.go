package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/awake"
	"github.com/reeveproject/reeve/proto/limits"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

const (
	// standstill replaces Patience.Word for a debugged process, which may stop at a breakpoint for days.
	standstill = 365 * 24 * time.Hour
	// watchPause is how long the core waits before it asks for the stream again.
	watchPause = 100 * time.Millisecond
)

// How often a role may change its status: every change costs the rest of the core something, and nobody needs every value.
const (
	// changesPerSecond is how many changes of the status are published in a second, after a burst of changesAtOnce. Of those in between the newest
	// is, as soon as it may be: a role that is not excessive waits for 100 ms at most.
	changesPerSecond = 10
	changesAtOnce    = 20
	// heardPerSecond bounds what the core reads of what a role states, in bytes, after a burst of heardAtOnce; a message costs messageCost more than its
	// size. A role that states more is kept waiting by its connection.
	heardPerSecond = 1 << 20
	heardAtOnce    = 4 << 20
	messageCost    = 1 << 10
)

// watch follows the role's status until the process ends, the role has failed or the context ends.
func (i *Instance) watch(ctx context.Context) {
	i.follow(ctx, i.session.process.life, rolev1.NewRoleServiceClient(i.session.conn))
}

// follow asks no more when life has ended. What has come by then is still read, to the end of the stream: that is what the role said last.
func (i *Instance) follow(ctx, life context.Context, client rolev1.RoleServiceClient) {
	stated := new(event.Value[*rolev1.WatchResponse])
	publishing, end := context.WithCancel(context.Background())
	var publisher sync.WaitGroup
	publisher.Go(func() { i.publish(publishing, stated) })
	// The last word is published in any case, before this returns.
	defer publisher.Wait()
	defer end()
	budget := rate.NewLimiter(heardPerSecond, heardAtOnce)
	broken := time.Now()
	for ctx.Err() == nil && life.Err() == nil {
		heard, err := i.receive(ctx, client, budget, stated)
		if heard {
			broken = time.Now()
		}
		if last, _ := stated.Get(); ctx.Err() != nil || life.Err() != nil || last.GetState() == rolev1.RoleState_ROLE_STATE_FAILED {
			return
		}
		if time.Since(broken) > i.session.launcher.patience.Silence {
			stated.Set(i.statusWith(rolev1.RoleState_ROLE_STATE_FAILED,
				fmt.Sprintf("it does not state its status any more (%s)", limits.Clean(limits.Cut(err.Error(), limits.Reason)))))
			return
		}
		select {
		case <-ctx.Done():
		case <-life.Done():
		case <-time.After(watchPause):
		}
	}
}

// publish makes the newest of what is stated the instance's status, no more often than a role may change it, until the context ends; what is
// stated by then still counts.
func (i *Instance) publish(ctx context.Context, stated *event.Value[*rolev1.WatchResponse]) {
	pace := rate.NewLimiter(changesPerSecond, changesAtOnce)
	watcher := stated.Watch()
	for {
		select {
		case <-ctx.Done():
		case <-watcher.Changed():
			_ = pace.Wait(ctx) // which fails if the context ends
		}
		// Everything is stated before the context ends, so what is published after that was seen is the last word.
		ended := ctx.Err() != nil
		select {
		case <-watcher.Changed():
			status, _ := watcher.Latest()
			i.status.Set(status)
		default:
		}
		if ended {
			return
		}
	}
}

// receive takes what one stream brings, within the budget, and says whether it brought anything. Its error is never nil.
func (i *Instance) receive(ctx context.Context, client rolev1.RoleServiceClient, budget *rate.Limiter, stated *event.Value[*rolev1.WatchResponse]) (heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := i.session.launcher.patience.Word
	if i.session.remit.Debugged {
		patience = standstill
	}
	waiting, end := awake.WithTimeout(ctx, patience)
	defer end()
	unhook := context.AfterFunc(waiting, func() { cancel(context.Cause(waiting)) })
	defer unhook()
	stream, err := client.Watch(ctx, &rolev1.WatchRequest{}, bounded())
	if err != nil {
		return false, err
	}
	for {
		status, err := stream.Recv()
		if err != nil {
			if errors.Is(context.Cause(ctx), awake.ErrElapsed) {
				err = fmt.Errorf("it stated nothing within %s", patience)
			}
			return heard, err
		}
		if !heard {
			heard = true
			unhook()
			end()
		}
		if err := i.check(status); err != nil {
			stated.Set(i.statusWith(rolev1.RoleState_ROLE_STATE_FAILED, "it breaks the role protocol: "+err.Error()))
			return heard, err
		}
		stated.Set(status)
		if err := budget.WaitN(ctx, min(proto.Size(status)+messageCost, heardAtOnce)); err != nil {
			return heard, err
		}
	}
}

// check refuses a status that the protocol does not allow, and makes its texts fit for people.
func (i *Instance) check(status *rolev1.WatchResponse) error {
	remit := i.session.remit
	if status.GetInstanceId() != remit.InstanceID || status.GetRole() != remit.Role || status.GetConfigurationGeneration() != i.generation {
		return fmt.Errorf("its status is not that of instance %s, generation %d", remit.InstanceID, i.generation)
	}
	if _, known := rolev1.RoleState_name[int32(status.GetState())]; !known || status.GetState() == rolev1.RoleState_ROLE_STATE_UNSPECIFIED {
		return fmt.Errorf("state %d is unknown", status.GetState())
	}
	status.Reason = limits.Cut(limits.Clean(limits.Cut(status.GetReason(), limits.Reason)), limits.Reason)
	if len(status.GetEndpoints()) > limits.Endpoints {
		return fmt.Errorf("%d endpoints; at most %d", len(status.GetEndpoints()), limits.Endpoints)
	}
	for _, endpoint := range status.GetEndpoints() {
		if !limits.NameOK(endpoint.GetName()) || len(endpoint.GetAddress()) > limits.Address || !limits.Line(endpoint.GetAddress()) {
			return fmt.Errorf("endpoint %q: want a name of one line of 1 to %d bytes and an address of one of at most %d", limits.Clean(limits.Cut(endpoint.GetName(), limits.Name)), limits.Name, limits.Address)
		}
	}
	if len(status.GetValues()) > limits.Values {
		return fmt.Errorf("%d values; at most %d", len(status.GetValues()), limits.Values)
	}
	for name, value := range status.GetValues() {
		if !limits.NameOK(name) || len(value) > limits.Value {
			return fmt.Errorf("value %q: want a name of one line of 1 to %d bytes and a value of at most %d", limits.Clean(limits.Cut(name, limits.Name)), limits.Name, limits.Value)
		}
	}
	return nil
}

func (i *Instance) statusWith(state rolev1.RoleState, reason string) *rolev1.WatchResponse {
	return &rolev1.WatchResponse{
		InstanceId:              i.session.remit.InstanceID,
		Role:                    i.session.remit.Role,
		ConfigurationGeneration: i.generation,
		State:                   state,
		Reason:                  reason,
	}
}
