package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/membership"
	"github.com/reeveproject/reeve/core/roles"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// Config configures a Room. Everything but Log is required.
type Config struct {
	// Log is the operator's log; nil discards it.
	Log hclog.Logger
	// RunDir is the node's absolute directory on a tmpfs. The sockets are RunDir/access/<instance name>/consensus.sock.
	RunDir string
	// CoreStart is when this core started. The set of the later core counts.
	CoreStart time.Time
	// Instances are the node's instances. The room does nothing before it is set: a new core must not close what its predecessor's instances use
	// before it knows them.
	Instances *event.Value[roles.Instances]
	// Capabilities says who provides which capability. Not set: nobody provides any.
	Capabilities *event.Value[roles.Capabilities]
	// Membership is the node's membership. Not set: unknown.
	Membership *event.Value[membership.Status]
}

func (c *Config) check() error {
	switch {
	case !filepath.IsAbs(c.RunDir):
		return fmt.Errorf("RunDir %q is not an absolute path", c.RunDir)
	case c.CoreStart.IsZero():
		return errors.New("CoreStart is missing")
	case c.Instances == nil || c.Capabilities == nil || c.Membership == nil:
		return errors.New("one of Instances, Capabilities and Membership is missing")
	}
	return nil
}

// Room derives who has access to the consensus store, and informs its provider and the instances. Run is its only worker.
type Room struct {
	config Config
	log    hclog.Logger
	states event.Value[States]
	store  *event.Value[*consensusv1.StoreStatus]

	// The fields below belong to Run.
	directories directories
	set         set
	providers   providers
	provider    *connection // nil while nobody provides the store
	reports     event.Value[report]
	sets        event.Value[*consensusv1.SetAccessRequest]
	failures    *backoff.ExponentialBackOff
	complaint   string // the last one that was logged
}

// New returns a room. It does nothing before Run.
func New(config Config) *Room {
	log := config.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return &Room{
		config:      config,
		log:         log.Named("access"),
		store:       event.New(&consensusv1.StoreStatus{}),
		directories: newDirectories(filepath.Join(config.RunDir, "access")),
		set:         newSet(config.CoreStart),
		providers:   make(providers),
		failures:    retries(),
	}
}

// States returns the answers of OpenConsensus to the running instances whose roles declare a ConsensusUser. It is set as soon as the instances are
// known.
func (r *Room) States() *event.Value[States] { return &r.states }

// Store returns the store's status as its provider on this node last reported it, or an empty one, which is not formed. It is never nil.
func (r *Room) Store() *event.Value[*consensusv1.StoreStatus] { return r.store }

// Run works until the context ends, and then returns nil. It does not tell the store about the end: the instances keep their access until another
// core says otherwise. Run must be called once.
func (r *Room) Run(ctx context.Context) error {
	if err := r.config.check(); err != nil {
		return fmt.Errorf("access: configuration: %w", err)
	}
	defer r.disconnect()
	instances, capabilities := r.config.Instances.Watch(), r.config.Capabilities.Watch()
	member, reports := r.config.Membership.Watch(), r.reports.Watch()
	for {
		again := r.step(ctx)
		select {
		case <-ctx.Done():
			r.leave()
			return nil
		case <-instances.Changed():
			_, _ = instances.Next(ctx) // there is one: this marks it as seen, as below
		case <-capabilities.Changed():
			_, _ = capabilities.Next(ctx)
		case <-member.Changed():
			_, _ = member.Next(ctx)
		case <-reports.Changed():
			_, _ = reports.Next(ctx)
		case <-again:
		}
	}
}

// step brings everything up to date. If something failed that may succeed later, it returns when to call it again.
func (r *Room) step(ctx context.Context) (again <-chan time.Time) {
	instances, known := r.config.Instances.Get()
	if !known {
		return nil
	}
	capabilities, _ := r.config.Capabilities.Get()
	status, statusKnown := r.config.Membership.Get()
	provider, provided := providerOf(capabilities)
	r.providers.learn(instances, capabilities)

	candidates := candidatesOf(instances)
	failed := r.makeDirectories(instances, candidates, provider)
	for _, c := range candidates {
		if c.refusal == nil {
			c.refusal = refusalBy(c, status, statusKnown)
		}
		if c.refusal == nil && !r.providers.among(instances) {
			c.refusal = refuse(noLocalConsensus, "no role of this node provides the consensus store: assign one to the node, or run this role on a node that has one")
		}
	}
	if r.set.request == nil && (!statusKnown || status.State == membership.Unknown) {
		// The store still has the set of the core before. Until this node knows what it is, it would exclude every role, so it sends no set yet.
		r.publish(candidates)
		return nil
	}
	if request, changed := r.set.replace(candidates, r.directories); changed {
		r.log.Info("The set of instances with access to the consensus store has changed", "number", request.GetNumber(), "instances", len(request.GetInstances()))
		r.sets.Set(request)
	}
	// Last, so that a new provider gets only the present set.
	r.follow(ctx, provider, provided)
	r.publish(candidates)
	if !failed {
		r.failures.Reset()
		return nil
	}
	return time.After(r.failures.NextBackOff())
}

// makeDirectories makes the candidates' directories and removes those of ended instances. It reports failures, and refuses candidates without a
// directory.
func (r *Room) makeDirectories(instances roles.Instances, candidates []*candidate, provider roles.Provider) (failed bool) {
	// A failure of the machine is retried, and ends neither the room nor the roles.
	unprepared := r.directories.prepare()
	if unprepared != nil {
		failed = true
		r.complain("Cannot make the directory of the consensus sockets; trying again", "error", unprepared)
	}
	wanted := make(map[string]struct{}, len(candidates))
	owner, haveOwner := uidOf(instances, provider.InstanceID)
	for _, c := range candidates {
		// A running instance keeps its directory while it is refused. If it gets access again before the store hears of the refusal, the store sees
		// no change and does not bind the socket again.
		wanted[c.remit.Name] = struct{}{}
		if c.refusal != nil {
			continue
		}
		if !haveOwner {
			continue // the provider will own the directory, so wait for it
		}
		if err := r.directories.make(c.remit, owner); err != nil {
			failed = true
			r.complain("Cannot make the directory of an instance's consensus socket; trying again", "instance", c.remit.InstanceID, "error", err)
			c.refusal = refuse(waiting, fmt.Sprintf("the core cannot make the socket's directory and tries again: %v", err))
		}
	}
	if unprepared != nil {
		return failed
	}
	if err := r.directories.keep(wanted); err != nil {
		failed = true
		r.complain("Cannot remove the directory of an ended instance; trying again", "error", err)
	}
	return failed
}

// complain logs a failure that every step meets again, once while it stays the same.
func (r *Room) complain(message string, arguments ...any) {
	level := hclog.Error
	if text := fmt.Sprint(message, arguments); text == r.complaint {
		level = hclog.Trace
	} else {
		r.complaint = text
	}
	r.log.Log(level, message, arguments...)
}

// publish publishes the answers to the instances and the store's status.
func (r *Room) publish(candidates []*candidate) {
	var status *consensusv1.StoreStatus
	if reported, _ := r.reports.Get(); r.provider != nil && reported.from == r.provider.instanceID {
		status = reported.status
	}
	states := make(States, len(candidates))
	for _, c := range candidates {
		states[c.remit.InstanceID] = r.set.answer(c, r.provider != nil, status, r.directories)
	}
	same := func(a, b *hostv1.OpenConsensusResponse) bool { return proto.Equal(a, b) }
	if before, ok := r.states.Get(); !ok || !maps.EqualFunc(before, states, same) {
		r.states.Set(states)
	}
	if status == nil {
		status = &consensusv1.StoreStatus{}
	}
	if before, _ := r.store.Get(); !proto.Equal(before, status) {
		r.store.Set(status)
	}
}

// leave removes the directories of instances that ended before the room.
func (r *Room) leave() {
	instances, known := r.config.Instances.Get()
	if !known {
		return
	}
	wanted := make(map[string]struct{})
	for _, c := range candidatesOf(instances) {
		wanted[c.remit.Name] = struct{}{}
	}
	if err := r.directories.keep(wanted); err != nil {
		r.log.Warn("Cannot remove the directory of an ended instance; the next start of the core removes it", "error", err)
	}
}
