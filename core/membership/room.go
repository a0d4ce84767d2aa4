package membership

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
	"github.com/reeveproject/reeve/core/enrol"
	"github.com/reeveproject/reeve/core/identity"
	"github.com/reeveproject/reeve/core/roles"
	"github.com/reeveproject/reeve/core/seal"
	names "github.com/reeveproject/reeve/proto/identity"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config is what the room needs.
type Config struct {
	Log hclog.Logger
	// Update changes the sealed configuration, which keeps the node's phase and its owner; Configuration is what it holds now. Whatever else is in it may be
	// another by then, keys that were rotated say.
	Update        func(ctx context.Context, change func(*seal.Configuration)) error
	Configuration seal.Configuration
	// Identity is watched: what the bootstrap returned must have arrived there, and so on disk, before the node is a member.
	Identity *event.Value[*identity.Identity]
	// Capabilities is watched for the providers of the store and of the cluster API.
	Capabilities *event.Value[roles.Capabilities]
	// Contact is watched for whether the cluster is in reach.
	Contact *event.Value[Contact]
	// Now is the machine's clock; nil: time.Now.
	Now func() time.Time
	// ClusterUser is the ConsensusUser of the role that provides the cluster API, as far as it is known.
	ClusterUser func() string
	// Bootstrap is what the first node brings into its cluster; nil once it is a member, and for a node that registers.
	Bootstrap *clusterv1.BootstrapRequest
	// Restore sends the role that provides the store the snapshot of which the cluster is restored; nil if the node is not restored.
	Restore func(context.Context, consensusv1.ConsensusServiceClient) error
	// Enrol is how a node is taken into a cluster that there is; nil for one that made its cluster.
	Enrol *Enrol
	// Curators is watched for where the cluster's curators are.
	Curators *event.Value[[]string]
	// StoreLeft is watched for whether the cluster has taken the role that provides the store from the node, and no instance of it runs.
	StoreLeft *event.Value[bool]
	// Removed is watched for that the cluster has removed the node.
	Removed *event.Value[*enrol.RemovedError]
	// Disown keeps that the node was removed, before anything else is done about it.
	Disown func(reason string) error
}

// Problem is what keeps the node from its cluster and does not pass by itself.
type Problem struct {
	// Role is the role that is Failed because of it.
	Role string
	// Message says what is wrong and what to do.
	Message string
	// store says that it is a problem of the consensus store, which ends when the node has no place in it any more.
	store bool
}

// Room takes the node to its cluster.
type Room struct {
	config      Config
	machine     machine
	problem     event.Value[*Problem]
	phase       event.Value[seal.Phase]
	formed      event.Value[bool] // the store is formed; holds nothing before
	credentials event.Value[identity.Credentials]
	// hint is what a member's place in the store waits for; empty: nothing.
	hint event.Value[string]
	// stored says that the sealed configuration says that this node has a member of the store. Once the node is a member, whoever changes it holds storing.
	stored  atomic.Bool
	storing chan struct{}
	// registration is by what the node finds its cluster, as it is kept; nil for a node that made it.
	registration atomic.Pointer[seal.Registration]
}

// New returns the room; the node's membership is Unknown until Run.
func New(config Config) *Room {
	if config.Now == nil {
		config.Now = time.Now
	}
	r := &Room{config: config, machine: machine{now: time.Now}, storing: make(chan struct{}, 1)}
	id, _ := config.Identity.Get()
	r.machine.status.Set(Status{
		State: Unknown, Reason: "the node has just started", Since: time.Now(),
		NodeID: id.NodeID, ClusterID: id.ClusterID, TrustDomain: id.TrustDomain,
	})
	r.phase.Set(config.Configuration.Phase)
	r.stored.Store(config.Configuration.StoreFormed)
	r.registration.Store(config.Configuration.Registration)
	return r
}

// Status is the node's membership.
func (r *Room) Status() *event.Value[Status] { return &r.machine.status }

// Credentials is what the bootstrap returned; it holds nothing before.
func (r *Room) Credentials() *event.Value[identity.Credentials] { return &r.credentials }

// Problem is what keeps the node from its cluster and does not pass by itself; it holds nothing before there is such a thing, and what it holds
// stands until the core starts again.
func (r *Room) Problem() *event.Value[*Problem] { return &r.problem }

// Phase is how far the node has come.
func (r *Room) Phase() *event.Value[seal.Phase] { return &r.phase }

// Run takes the node to its cluster and follows its membership until the context ends. It fails only if the program is at fault.
func (r *Room) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan error, 3)
	go func() { results <- r.openStores(ctx) }()
	go func() { results <- r.leaveStores(ctx) }()
	go func() { results <- r.follow(ctx) }()
	first := <-results
	cancel()
	return errors.Join(first, <-results, <-results)
}

// follow is the only writer of the membership state.
func (r *Room) follow(ctx context.Context) error {
	if err := r.come(ctx); err != nil {
		var removed *enrol.RemovedError
		if errors.As(err, &removed) {
			err = r.disown(ctx, removed)
		}
		return ended(ctx, err)
	}
	contacts, problems, identities := r.config.Contact.Watch(), r.problem.Watch(), r.config.Identity.Watch()
	hints, curators, removals := r.hint.Watch(), r.config.Curators.Watch(), r.config.Removed.Watch()
	settled := time.NewTimer(freshFor)
	defer settled.Stop()
	for {
		var again <-chan time.Time
		id, _ := identities.Latest()
		if err := r.keepOwner(ctx, id.Owner); err != nil {
			// The node goes on: it knows the new owner, and after a restart is told again.
			r.config.Log.Error("the cluster's new owner key cannot be kept; after a restart the node would begin with the former one", "error", err, "again", rewrite)
			again = time.After(rewrite)
		}
		known, _ := curators.Latest()
		if err := r.keepRegistration(ctx, id, known); err != nil {
			r.config.Log.Error("by what the node finds its cluster cannot be kept", "error", err, "again", rewrite)
			again = time.After(rewrite)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-removals.Changed():
			if removed, _ := removals.Latest(); removed != nil {
				return ended(ctx, r.disown(ctx, removed))
			}
			continue
		case <-curators.Changed():
			continue
		case <-hints.Changed():
		case <-contacts.Changed():
		case <-problems.Changed():
		case <-identities.Changed():
			continue
		case <-again:
			continue
		case <-settled.C:
			r.machine.settle()
			continue
		}
		problem, _ := problems.Latest()
		contact, told := contacts.Latest()
		hint, _ := hints.Latest()
		var err error
		switch state := r.state(); {
		case told && contact.OK:
			err = r.machine.to(Home, cmp.Or(contact.Reason, hint, "member of the cluster"))
		case problem != nil && state == Split:
			err = r.machine.to(Split, problem.Message)
		case state == Home && told, state == Split && told:
			err = r.machine.to(Split, contact.Reason)
		case state == Trusted && told:
			err = r.machine.to(Trusted, "the cluster has taken the node in, and is not in reach yet: "+contact.Reason)
		}
		if err != nil {
			return err
		}
	}
}

// freshFor is how long a member has to find its cluster after it has started, before it counts as cut off from it: a cluster of one has to start its own
// store and cluster API meanwhile, unless they run on.
const freshFor = 10 * time.Second

func (r *Room) state() State {
	current, _ := r.machine.status.Get()
	return current.State
}

// bootstrap makes the cluster of which this node is the first.
func (r *Room) bootstrap(ctx context.Context) error {
	if phase, _ := r.phase.Get(); phase == seal.Forming {
		if err := r.awaitFormed(ctx); err != nil {
			return err
		}
		if err := r.enter(ctx, seal.Formed, checkpoint.EnterFormed, func(c *seal.Configuration) { c.StoreFormed = true }); err != nil {
			return err
		}
		r.stored.Store(true)
	}
	if err := r.machine.to(Bootstrapping, "waiting for the cluster API to "+r.making()+" the cluster"); err != nil {
		return err
	}
	var answer *clusterv1.BootstrapResponse
	err := r.withProvider(ctx, roles.CapabilityCluster, func(ctx context.Context, provider roles.Provider) error {
		if err := clockError(r.config.Now()); err != nil {
			if err := r.machine.to(Bootstrapping, err.Error()); err != nil {
				return backoff.Permanent(err)
			}
			return err
		}
		response, err := r.makeCluster(ctx, provider)
		if err == nil {
			answer = response
			return nil
		}
		reason := "the cluster API does not " + r.making() + " the cluster: " + status.Convert(err).Message()
		switch status.Code(err) {
		case codes.AlreadyExists, codes.InvalidArgument, codes.FailedPrecondition:
			r.fail(provider, false, "cannot "+r.making()+" the cluster: "+status.Convert(err).Message())
		}
		if err := r.machine.to(Bootstrapping, reason); err != nil {
			return backoff.Permanent(err)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.credentials.Set(identity.Credentials{CA: answer.GetCaCertificates(), SVID: answer.GetNodeSvid(), Owner: r.config.Bootstrap.GetOwnerPublicKey()})
	if _, err := r.config.Identity.Wait(ctx, func(id *identity.Identity) bool { return len(id.CA) > 0 && id.SVID != nil }); err != nil {
		return err
	}
	if err := r.enter(ctx, seal.Member, checkpoint.EnterMember, nil); err != nil {
		return err
	}
	r.config.Log.Info("the cluster is made", "cluster", r.config.Configuration.ClusterID)
	return r.machine.to(Bootstrapping, "waiting for the first contact to the cluster API")
}

// come takes the node as far as being a member. *enrol.RemovedError if the cluster does not want it.
func (r *Room) come(ctx context.Context) error {
	switch phase, _ := r.phase.Get(); {
	case phase == seal.Member:
		return r.machine.begin()
	case r.config.Enrol != nil:
		return r.enrol(ctx)
	}
	return r.bootstrap(ctx)
}

// fail publishes a problem that does not pass by itself. It stands until the core starts again, which is when it is tried again.
func (r *Room) fail(provider roles.Provider, store bool, message string) {
	r.failed(&Problem{Role: provider.Role, Message: r.thenTry(message), store: store})
}

// failOr is fail for a problem of the store, of which there may be another way out.
func (r *Room) failOr(provider roles.Provider, message, other string) {
	r.failed(&Problem{Role: provider.Role, Message: r.thenTry(message) + other, store: true})
}

func (r *Room) failed(problem *Problem) {
	if last, _ := r.problem.Get(); last == nil || *last != *problem {
		r.config.Log.Error("the node cannot come to its cluster", "role", problem.Role, "problem", problem.Message)
		r.problem.Set(problem)
	}
}

// enter persists the next phase, with what else changes by it, and then publishes it.
func (r *Room) enter(ctx context.Context, phase seal.Phase, step checkpoint.Step, with func(*seal.Configuration)) error {
	checkpoint.At(step)
	err := r.keep(ctx, fmt.Sprintf("the node's progress (%s)", phase), func() error {
		return r.config.Update(ctx, func(c *seal.Configuration) {
			c.Phase = phase
			if with != nil {
				with(c)
			}
		})
	})
	if err == nil {
		r.phase.Set(phase)
	}
	return err
}

// keep keeps something. As long as it cannot, on a full disk say, the node says so, waits and tries again.
func (r *Room) keep(ctx context.Context, what string, write func() error) error {
	for {
		err := write()
		if err == nil {
			return nil
		}
		r.config.Log.Error("something cannot be kept; trying again", "what", what, "error", err, "in", rewrite)
		if err := r.machine.to(r.state(), fmt.Sprintf("%s cannot be kept, which is tried again: %v", what, err)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rewrite):
		}
	}
}

// rewrite is how long the node waits before it tries again to keep what it has to.
const rewrite = 5 * time.Second

// keepOwner persists the owner key that the cluster has told, so that one that was replaced is worth nothing after a restart either.
func (r *Room) keepOwner(ctx context.Context, owner ed25519.PublicKey) error {
	if len(owner) == 0 || owner.Equal(r.config.Configuration.Owner) {
		return nil
	}
	if err := r.config.Update(ctx, func(c *seal.Configuration) { c.Owner = owner }); err != nil {
		return err
	}
	r.config.Configuration.Owner = owner
	r.config.Log.Warn("the cluster has another owner key than before", "owner", names.OwnerKeyID(owner))
	return nil
}

func (r *Room) nodeID() string {
	current, _ := r.machine.status.Get()
	return current.NodeID
}

// ended turns the end of the context into success.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
