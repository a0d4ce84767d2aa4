package membership

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/reeveproject/reeve/core/checkpoint"
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
	// ClusterUser is the ConsensusUser of the role that provides the cluster API.
	ClusterUser string
	// Bootstrap is what the first node brings into its cluster; nil once it is a member.
	Bootstrap *clusterv1.BootstrapRequest
}

// Problem is what keeps the node from its cluster and does not pass by itself.
type Problem struct {
	// Role is the role that is Failed because of it.
	Role string
	// Message says what is wrong and what to do.
	Message string
}

// Room takes the node to its cluster.
type Room struct {
	config      Config
	machine     machine
	problem     event.Value[*Problem]
	phase       event.Value[seal.Phase]
	formed      event.Value[bool] // the store is formed; holds nothing before
	credentials event.Value[identity.Credentials]
}

// New returns the room; the node's membership is Unknown until Run.
func New(config Config) *Room {
	if config.Now == nil {
		config.Now = time.Now
	}
	r := &Room{config: config, machine: machine{now: time.Now}}
	id, _ := config.Identity.Get()
	r.machine.status.Set(Status{
		State: Unknown, Reason: "the node has just started", Since: time.Now(),
		NodeID: id.NodeID, ClusterID: id.ClusterID, TrustDomain: id.TrustDomain,
	})
	r.phase.Set(config.Configuration.Phase)
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
	results := make(chan error, 2)
	go func() { results <- r.openStores(ctx) }()
	go func() { results <- r.follow(ctx) }()
	first := <-results
	cancel()
	return errors.Join(first, <-results)
}

// follow is the only writer of the membership state.
func (r *Room) follow(ctx context.Context) error {
	if phase, _ := r.phase.Get(); phase == seal.Member {
		if err := r.machine.begin(); err != nil {
			return err
		}
	} else {
		if err := r.bootstrap(ctx); err != nil {
			return ended(ctx, err)
		}
	}
	contacts, problems, identities := r.config.Contact.Watch(), r.problem.Watch(), r.config.Identity.Watch()
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
		select {
		case <-ctx.Done():
			return nil
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
		contact, known := contacts.Latest()
		var err error
		switch state := r.state(); {
		case known && contact.OK:
			err = r.machine.to(Home, cmp.Or(contact.Reason, "member of the cluster"))
		case problem != nil && state == Split:
			err = r.machine.to(Split, problem.Message)
		case state == Home && known, state == Split && known:
			err = r.machine.to(Split, contact.Reason)
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
	if err := r.machine.to(Bootstrapping, "forming the consensus store"); err != nil {
		return err
	}
	if phase, _ := r.phase.Get(); phase == seal.Forming {
		if _, err := r.formed.Wait(ctx, func(formed bool) bool { return formed }); err != nil {
			return err
		}
		if err := r.enter(ctx, seal.Formed, checkpoint.EnterFormed); err != nil {
			return err
		}
	}
	if err := r.machine.to(Bootstrapping, "waiting for the cluster API to bootstrap the cluster"); err != nil {
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
		response, err := clusterv1.NewBootstrapServiceClient(provider.Conn).Bootstrap(ctx, r.config.Bootstrap)
		if err == nil {
			answer = response
			return nil
		}
		reason := "the cluster API does not bootstrap the cluster: " + status.Convert(err).Message()
		switch status.Code(err) {
		case codes.AlreadyExists, codes.InvalidArgument, codes.FailedPrecondition:
			r.fail(provider, "the cluster cannot be bootstrapped: "+status.Convert(err).Message())
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
	if err := r.enter(ctx, seal.Member, checkpoint.EnterMember); err != nil {
		return err
	}
	r.config.Log.Info("the cluster is made", "cluster", r.config.Configuration.ClusterID)
	return r.machine.to(Bootstrapping, "waiting for the first contact to the cluster API")
}

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
		ClusterUser: r.config.ClusterUser,
		How:         &consensusv1.FormRequest_Existing{Existing: &consensusv1.FormExisting{}},
	}
	phase, _ := r.phase.Get()
	if phase == seal.Forming {
		request.How = &consensusv1.FormRequest_New{New: &consensusv1.FormNew{}}
	}
	if _, err := consensusv1.NewConsensusServiceClient(provider.Conn).Form(ctx, request); err != nil {
		for _, detail := range status.Convert(err).Details() {
			if problem, ok := detail.(*consensusv1.FormProblem); ok {
				r.fail(provider, problem.GetMessage())
				return err
			}
		}
		if code := status.Code(err); code == codes.InvalidArgument || code == codes.Unimplemented {
			r.fail(provider, "the consensus store cannot be opened: "+status.Convert(err).Message())
		}
		return err
	}
	r.formed.Set(true)
	return nil
}

// fail publishes a problem that does not pass by itself. It stands until the core starts again, which is when it is tried again.
func (r *Room) fail(provider roles.Provider, message string) {
	problem := &Problem{Role: provider.Role, Message: message + "; then start reeved again"}
	if last, _ := r.problem.Get(); last == nil || *last != *problem {
		r.config.Log.Error("the node cannot come to its cluster", "role", provider.Role, "problem", message)
		r.problem.Set(problem)
	}
}

// enter persists the next phase and then publishes it. As long as it cannot be kept, on a full disk say, the node says so, waits and tries again.
func (r *Room) enter(ctx context.Context, phase seal.Phase, step checkpoint.Step) error {
	checkpoint.At(step)
	for {
		err := r.config.Update(ctx, func(c *seal.Configuration) { c.Phase = phase })
		if err == nil {
			r.phase.Set(phase)
			return nil
		}
		r.config.Log.Error("the node's progress cannot be kept; trying again", "phase", phase, "error", err, "in", rewrite)
		if err := r.machine.to(r.state(), fmt.Sprintf("the node's progress (%s) cannot be kept, which is tried again: %v", phase, err)); err != nil {
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
		attempt, cancel := context.WithTimeout(ctx, time.Minute)
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

// ended turns the end of the context into success.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
