package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
)

// openStores forms the local member of the store through every instance that provides it, as long as the context lives.
func (r *Room) openStores(ctx context.Context) error {
	watcher := r.config.Capabilities.Watch()
	formed := ""
	for {
		capabilities, err := watcher.Next(ctx)
		if err != nil {
			return nil
		}
		provider, ok := capabilities[roles.CapabilityConsensus]
		if !ok || provider.InstanceID == formed {
			continue
		}
		// The provider may be another instance by the time that the call succeeds.
		err = r.withProvider(ctx, roles.CapabilityConsensus, func(ctx context.Context, provider roles.Provider) error {
			formed = provider.InstanceID
			return r.form(ctx, provider)
		})
		if err != nil {
			return ended(ctx, err)
		}
	}
}

// form forms the store through one instance.
func (r *Room) form(ctx context.Context, provider roles.Provider) error {
	request := &consensusv1.FormRequest{
		ClusterId:   r.config.Configuration.ClusterID,
		NodeId:      r.nodeID(),
		ClusterUser: r.config.ClusterUser(),
		How:         &consensusv1.FormRequest_Existing{Existing: &consensusv1.FormExisting{}},
	}
	phase, _ := r.phase.Get()
	joins := phase == seal.Member && !r.stored.Load()
	switch {
	case phase == seal.Forming && r.restores():
		if err := r.send(ctx, provider); err != nil {
			return err
		}
		request.How = &consensusv1.FormRequest_Restored{Restored: &consensusv1.FormRestored{}}
	case phase == seal.Forming:
		request.How = &consensusv1.FormRequest_New{New: &consensusv1.FormNew{}}
	case joins:
		request.How = &consensusv1.FormRequest_Join{Join: &consensusv1.FormJoin{}}
	}
	if _, err := consensusv1.NewConsensusServiceClient(provider.Conn).Form(ctx, request); err != nil {
		for _, detail := range status.Convert(err).Details() {
			if problem, ok := detail.(*consensusv1.FormProblem); ok {
				r.failOr(provider, problem.GetMessage(), r.wayOut(provider, problem.GetKind()))
				return err
			}
		}
		if code := status.Code(err); code == codes.InvalidArgument || code == codes.Unimplemented {
			r.fail(provider, true, "the consensus store cannot be opened: "+status.Convert(err).Message())
		} else if joins {
			r.hint.Set("member of the cluster; the node joins its consensus store, which waits: " + status.Convert(err).Message())
		}
		return err
	}
	if joins {
		if err := r.keepStored(ctx, checkpoint.EnterStore, provider.InstanceID); err != nil {
			return fmt.Errorf("cannot save that the node has a member of the consensus store: %w", err)
		}
		r.hint.Set("")
	}
	r.clearStoreProblem() // the member may have joined anew by itself
	r.formed.Set(true)
	return nil
}

// wayOut is what to do besides about a store that cannot be opened: a member that the others have removed, or that has lost its data, joins anew once it has left.
func (r *Room) wayOut(provider roles.Provider, kind consensusv1.FormProblemKind) string {
	if phase, _ := r.phase.Get(); phase != seal.Member || kind != consensusv1.FormProblemKind_FORM_PROBLEM_KIND_STORE_MISSING {
		return ""
	}
	return fmt.Sprintf("; or, where the store has other members, `reeve node role remove %[1]s %[2]s`, wait until the role is gone from the node, then `reeve node role add %[1]s %[2]s`: "+
		"it joins the store anew", r.nodeID(), provider.Role)
}

// leaveStores calls leaveStore whenever StoreLeft says so, as long as the context lives.
func (r *Room) leaveStores(ctx context.Context) error {
	watcher := r.config.StoreLeft.Watch()
	for {
		var again <-chan time.Time
		if left, _ := watcher.Latest(); left {
			if err := r.leaveStore(ctx); err != nil {
				r.config.Log.Error("cannot save that the node has left the consensus store; trying again", "error", err, "again", rewrite)
				again = time.After(rewrite)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Changed():
		case <-again:
		}
	}
}

// leaveStore saves that this node has no member of the consensus store any more, so that its next instance joins.
func (r *Room) leaveStore(ctx context.Context) error {
	if err := r.keepStored(ctx, checkpoint.LeaveStore, ""); err != nil {
		return fmt.Errorf("membership: cannot save that the node has left the consensus store: %w", err)
	}
	r.hint.Set("")
	r.clearStoreProblem()
	return nil
}

func (r *Room) clearStoreProblem() {
	if problem, _ := r.problem.Get(); problem != nil && problem.store {
		r.problem.Set(nil)
	}
}

// errGone says that the instance which formed the store has ended. The cluster may have taken its role from the node since.
var errGone = errors.New("the instance that provides the store has ended")

// keepStored keeps on disk that this node has a member of the store, formed by an instance, or that it has none (by is empty), and then has it in memory. One caller
// at a time does both, so that the two agree.
func (r *Room) keepStored(ctx context.Context, step checkpoint.Step, by string) error {
	select {
	case r.storing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.storing }()
	stored := by != ""
	capabilities, _ := r.config.Capabilities.Get()
	switch {
	case stored && capabilities[roles.CapabilityConsensus].InstanceID != by:
		return errGone
	case r.stored.Load() == stored:
		return nil
	}
	checkpoint.At(step)
	if err := r.config.Update(ctx, func(c *seal.Configuration) { c.StoreFormed = stored }); err != nil {
		return err
	}
	r.stored.Store(stored)
	return nil
}

// withProvider calls something of the present provider of a capability until it succeeds: again with back-off when it fails, at once when the
// provider is another instance. It fails with a permanent error of the call or with the context's.
func (r *Room) withProvider(ctx context.Context, capability string, call func(context.Context, roles.Provider) error) error {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval = 50 * time.Millisecond // a role that has just been launched answers within about that
	retry.MaxInterval = 5 * time.Second
	last := ""
	for {
		capabilities, err := r.config.Capabilities.Wait(ctx, func(c roles.Capabilities) bool {
			_, ok := c[capability]
			return ok
		})
		if err != nil {
			return err
		}
		provider := capabilities[capability]
		attempt, cancel := context.WithTimeout(ctx, r.attemptBound())
		err = call(attempt, provider)
		cancel()
		if err == nil {
			return nil
		}
		var permanent *backoff.PermanentError
		if errors.As(err, &permanent) {
			return permanent.Err
		}
		// Once for each reason: an operator should see what the node waits for, not how often it tries.
		if text := err.Error(); text != last {
			last = text
			r.config.Log.Warn("the role that provides a capability does not do what the node needs yet", "capability", capability, "instance", provider.InstanceID, "error", err)
		}
		pause, cancel := context.WithTimeout(ctx, retry.NextBackOff())
		_, _ = r.config.Capabilities.Wait(pause, func(c roles.Capabilities) bool { return c[capability].InstanceID != provider.InstanceID })
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
