package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	"github.com/reeveproject/reeve/sdk/event"
)

// The instance states, under short names.
const (
	blocked  = hostv1.InstanceState_INSTANCE_STATE_BLOCKED
	starting = hostv1.InstanceState_INSTANCE_STATE_STARTING
	ready    = hostv1.InstanceState_INSTANCE_STATE_READY
	degraded = hostv1.InstanceState_INSTANCE_STATE_DEGRADED
	stopping = hostv1.InstanceState_INSTANCE_STATE_STOPPING
	stopped  = hostv1.InstanceState_INSTANCE_STATE_STOPPED
	backoff  = hostv1.InstanceState_INSTANCE_STATE_BACKOFF
	failed   = hostv1.InstanceState_INSTANCE_STATE_FAILED
)

func stateName(state hostv1.InstanceState) string {
	name := strings.ToLower(strings.TrimPrefix(state.String(), "INSTANCE_STATE_"))
	return strings.ToUpper(name[:1]) + name[1:]
}

// entry is what is known of one role. Its parts are never changed, only replaced.
type entry struct {
	status   *clusterv1.InstanceStatus
	provided []string
	remit    *plugin.Remit
	process  *plugin.Process
	sandbox  *nodev1.Sandbox
	conn     grpc.ClientConnInterface
	// idle is the generation of the newest plan that the role's actor has seen while it had no instance.
	idle uint64
}

// board is where the actors write what they do, and what they read of each other. It is the one writer of what the package publishes.
type board struct {
	instances    *event.Value[Instances]
	capabilities *event.Value[Capabilities]
	// entries is set anew with every change.
	entries *event.Value[map[string]entry]

	mu sync.Mutex
	// claims and holders say who provides what; see choose.
	claims  map[string][]claim
	holders map[string]string
}

func newBoard() *board {
	return &board{
		instances:    event.New(Instances{}),
		capabilities: event.New(Capabilities{}),
		entries:      event.New(map[string]entry{}),
		holders:      make(map[string]string),
	}
}

func (b *board) put(role string, e entry) {
	b.change(func(entries map[string]entry) bool {
		old, ok := entries[role]
		if ok && old.idle == e.idle && old.sameAs(e) {
			return false
		}
		entries[role] = e
		return true
	})
}

func (e entry) sameAs(other entry) bool {
	return proto.Equal(e.status, other.status) && e.remit == other.remit && e.conn == other.conn
}

func (b *board) remove(role string) {
	b.change(func(entries map[string]entry) bool {
		delete(entries, role)
		return true
	})
}

func (b *board) change(change func(map[string]entry) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, _ := b.entries.Get()
	entries := maps.Clone(before)
	if !change(entries) {
		return
	}
	b.entries.Set(entries)
	if maps.EqualFunc(before, entries, entry.sameAs) {
		return // nothing that anybody else can see
	}
	b.instances.Set(instancesOf(entries))
	b.capabilities.Set(b.capabilitiesOf(entries))
}

func instancesOf(entries map[string]entry) Instances {
	instances := make(Instances, 0, len(entries))
	for _, role := range slices.Sorted(maps.Keys(entries)) {
		e := entries[role]
		instances = append(instances, Instance{Status: e.status, Provides: e.provided, Remit: e.remit, Process: e.process, Sandbox: e.sandbox})
	}
	return instances
}

// grantedUser is the ConsensusUser that the role both declares and was granted.
func grantedUser(remit *plugin.Remit) string {
	if user := remit.Manifest.GetConsensusUser(); user == remit.Grants.GetConsensusUser() {
		return user
	}
	return ""
}

// unmet says what a role that requires these still waits for; "": nothing. What is required may be Degraded: it runs, and whoever puts it right
// may need the very role that waits, as the cluster API is needed to make room in a store that is full.
func unmet(entries map[string]entry, requires []requirement) string {
	for _, r := range requires {
		var states []string
		met := slices.ContainsFunc(r.providers, func(role string) bool {
			e, ok := entries[role]
			switch {
			case !ok:
				states = append(states, "role "+role+" has not been started")
			case e.status.GetState() != ready && e.status.GetState() != degraded:
				states = append(states, "role "+role+" is "+stateName(e.status.GetState()))
			default:
				return true
			}
			return false
		})
		if !met {
			return fmt.Sprintf("waits for %s: %s", r.name, strings.Join(states, ", "))
		}
	}
	return ""
}

// busy returns those of the roles that may still have an instance in the plan of a generation.
func busy(entries map[string]entry, roles []string, generation uint64) []string {
	var found []string
	for _, role := range roles {
		if e, ok := entries[role]; ok && e.idle < generation {
			found = append(found, role)
		}
	}
	return found
}
