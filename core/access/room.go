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

// Config is what a Room needs. All of it but Log is required.
type Config struct {
	// Log receives what an operator may want to know; nil discards it.
	Log hclog.Logger
	// RunDir is the node's directory on a tmpfs, absolute. The sockets are at RunDir/access/<instance name>/consensus.sock.
	RunDir string
	// CoreStart is when this core started. Of two cores' sets the later core's counts.
	CoreStart time.Time
	// Instances is the node's instances. Nothing is done before it is set: a core that has just started must not close what the
	// instances of its predecessor use before it knows which there are.
	Instances *event.Value[roles.Instances]
	// Capabilities is who provides which capability. Not set means nobody provides any.
	Capabilities *event.Value[roles.Capabilities]
	// Membership is the node's membership. Not set means that it is not known.
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

// Room derives who may use the consensus store and keeps its provider and the instances informed. Run is its one worker.
type Room struct {
	config Config
	log    hclog.Logger
	states event.Value[States]
	store  *event.Value[*consensusv1.StoreStatus]

	// What follows belongs to Run.
	directories directories
	set         set
	providers   providers
	provider    *connection // nil while nobody provides the store
	reports     event.Value[report]
	sets        event.Value[*consensusv1.SetAccessRequest]
	failures    *backoff.ExponentialBackOff
	complaint   string // the last one that was logged
}

// New returns a room that has done nothing yet.
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

// States returns what OpenConsensus answers to each running instance whose role declares a ConsensusUser. It is set as soon as the instances
// are known.
func (r *Room) States() *event.Value[States] { return &r.states }

// Store returns the status of the store as its provider on this node last reported it; an empty one, which is not formed, while there is
// no report. It is never nil.
func (r *Room) Store() *event.Value[*consensusv1.StoreStatus] { return r.store }

// Run keeps everything up to date until the context ends; it then returns nil. The store is not told of the end: the instances keep what
// they have, until another core says otherwise. Run must be called once.
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
			_, _ = instances.Next(ctx) // has one: only notes that it was seen, as below
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

// step brings everything in line with what is so now. Where something failed that may succeed later it returns when to call it again.
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
		// The store has open what the core before this one allowed. It is told of a change once there can be one: not of every role's exclusion by a
		// node that does not know yet what it is.
		r.publish(candidates)
		return nil
	}
	if request, changed := r.set.replace(candidates, r.directories); changed {
		r.log.Info("The set of instances that may use the consensus store has changed", "number", request.GetNumber(), "instances", len(request.GetInstances()))
		r.sets.Set(request)
	}
	// Last, so that a new provider is given no set but the present one.
	r.follow(ctx, provider, provided)
	r.publish(candidates)
	if !failed {
		r.failures.Reset()
		return nil
	}
	return time.After(r.failures.NextBackOff())
}

// makeDirectories makes the directories of the candidates and removes those of instances that are gone. It reports whether something
// failed; a candidate without a directory is then refused.
func (r *Room) makeDirectories(instances roles.Instances, candidates []*candidate, provider roles.Provider) (failed bool) {
	// What the machine lacks is tried again, and ends neither the room nor what runs.
	unprepared := r.directories.prepare()
	if unprepared != nil {
		failed = true
		r.complain("The directory of the consensus sockets cannot be made; it is tried again", "error", unprepared)
	}
	wanted := make(map[string]struct{}, len(candidates))
	owner, haveOwner := uidOf(instances, provider.InstanceID)
	for _, c := range candidates {
		// A running instance keeps its directory while it is refused: it may be open again before the store has heard of it, which then sees no
		// change and would not bind the socket anew.
		wanted[c.remit.Name] = struct{}{}
		if c.refusal != nil {
			continue
		}
		if !haveOwner {
			continue // the directory waits for the provider, whose it will be
		}
		if err := r.directories.make(c.remit, owner); err != nil {
			failed = true
			r.complain("The directory of an instance's consensus socket cannot be made; it is tried again", "instance", c.remit.InstanceID, "error", err)
			c.refusal = refuse(waiting, fmt.Sprintf("the core cannot make the directory of the socket, and tries again: %v", err))
		}
	}
	if unprepared != nil {
		return failed
	}
	if err := r.directories.keep(wanted); err != nil {
		failed = true
		r.complain("A directory of an instance that is gone cannot be removed; it is tried again", "error", err)
	}
	return failed
}

// complain logs a failure that is met again at every step, once as long as it stays the same.
func (r *Room) complain(message string, arguments ...any) {
	level := hclog.Error
	if text := fmt.Sprint(message, arguments); text == r.complaint {
		level = hclog.Trace
	} else {
		r.complaint = text
	}
	r.log.Log(level, message, arguments...)
}

// publish tells the instances and the rest of the core what is so.
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

// leave removes the directories of the instances that ended before the room did.
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
		r.log.Warn("A directory of an instance that is gone stays behind; the next start removes it", "error", err)
	}
}
