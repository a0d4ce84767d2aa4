package cluster

import (
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
)

// How often the node reports. Every report is one write of the whole status to the consensus store, and is sent on to every node: what roles state
// must not decide how many there are.
const (
	// reportEvery is how soon after a report the next is sent, whatever changed.
	reportEvery = 2 * time.Second
	// A change that others act upon is sent at once, as long as it is not one of too many: roleChanges of one role at once, and one more every
	// roleChangeEvery; allChanges of all of them, and one more every allChangeEvery. A role that restarts, with the back-off of its restarts, stays
	// below; one that changes its endpoints for ever has only itself wait. So a node sends one report a second in the long run, come what may.
	roleChanges     = 12
	roleChangeEvery = 2 * reportEvery
	allChanges      = 64
	allChangeEvery  = reportEvery
)

// pace says when the next report may be sent. It outlives sessions, so that a new connection is no way around it.
type pace struct {
	last  time.Time
	all   *rate.Limiter
	roles map[string]budget // by role; the node's own fields under ""
}

// budget bounds how often a role's changes are reported at once. Every new generation of the role's assignment gets a new budget: operators wait for the result of
// their own decision, and a role cannot cause one.
type budget struct {
	*rate.Limiter
	generation uint64
}

func newPace() *pace {
	return &pace{all: rate.NewLimiter(rate.Every(allChangeEvery), allChanges), roles: make(map[string]budget)}
}

// wait is how long a report has to wait that follows sent (nil: it is the first on its connection).
func (p *pace) wait(now time.Time, sent, next *clusterv1.NodeStatus) time.Duration {
	later := max(0, p.last.Add(reportEvery).Sub(now))
	if p.all.TokensAt(now) < 1 {
		return later
	}
	for _, changed := range pressing(sent, next) {
		if p.of(changed).TokensAt(now) >= 1 {
			return 0
		}
	}
	return later
}

// spend counts a report that is sent now.
func (p *pace) spend(now time.Time, sent, next *clusterv1.NodeStatus) {
	p.last = now
	changes := pressing(sent, next)
	if len(changes) > 0 {
		p.all.AllowN(now, 1)
	}
	for _, changed := range changes {
		p.of(changed).AllowN(now, 1)
	}
	// A role that is gone leaves nothing behind, once it could have begun anew anyway.
	for role, budget := range p.roles {
		if budget.TokensAt(now) >= roleChanges {
			delete(p.roles, role)
		}
	}
}

func (p *pace) of(changed change) *rate.Limiter {
	known, ok := p.roles[changed.role]
	if !ok || changed.generation > known.generation {
		known = budget{Limiter: rate.NewLimiter(rate.Every(roleChangeEvery), roleChanges), generation: changed.generation}
		p.roles[changed.role] = known
	}
	return known.Limiter
}

// change names a role of which something changed, and the generation of its assignment.
type change struct {
	role       string
	generation uint64
}

// pressing returns the roles of which something changed that others act upon; "" stands for the node itself.
func pressing(sent, next *clusterv1.NodeStatus) []change {
	if sent == nil {
		return []change{{}}
	}
	var changed []change
	if !proto.Equal(nodeActedUpon(sent), nodeActedUpon(next)) {
		changed = append(changed, change{})
	}
	before := make(map[string]*clusterv1.InstanceStatus)
	for _, instance := range sent.GetInstances() {
		before[instance.GetRole()] = instance
	}
	for _, instance := range next.GetInstances() {
		role := instance.GetRole()
		if old, ok := before[role]; !ok || old != instance && !proto.Equal(actedUpon(old), actedUpon(instance)) {
			changed = append(changed, change{role, instance.GetConfigurationGeneration()})
		}
		delete(before, role)
	}
	for role, instance := range before {
		changed = append(changed, change{role, instance.GetConfigurationGeneration()})
	}
	return changed
}

// nodeActedUpon returns the fields about the node itself that other nodes or the cluster act upon. Reasons, times and the details of the volume are only for people to read.
func nodeActedUpon(status *clusterv1.NodeStatus) *clusterv1.NodeStatus {
	return &clusterv1.NodeStatus{
		NodeId: status.GetNodeId(), Addresses: status.GetAddresses(), ApiAddress: status.GetApiAddress(), Isolation: status.GetIsolation(),
		Volume: status.GetVolume(), Version: status.GetVersion(), CaPins: status.GetCaPins(),
		Membership: &hostv1.Membership{State: status.GetMembership().GetState()}, Storage: &clusterv1.StorageStatus{State: status.GetStorage().GetState()},
	}
}

// actedUpon is a status without what is there to be looked at only: published values, reasons and times.
func actedUpon(status *clusterv1.InstanceStatus) *clusterv1.InstanceStatus {
	return &clusterv1.InstanceStatus{
		Role: status.GetRole(), State: status.GetState(), InstanceId: status.GetInstanceId(), Pid: status.GetPid(), Restarts: status.GetRestarts(),
		Plugin: status.GetPlugin(), PluginVersion: status.GetPluginVersion(), Digest: status.GetDigest(),
		ConfigurationGeneration: status.GetConfigurationGeneration(), Endpoints: status.GetEndpoints(),
	}
}
