package roles

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/reeveproject/reeve/core/plugin/store"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	"github.com/reeveproject/reeve/proto/remit"
)

// verdict is what a plan says of one role.
type verdict struct {
	// generation grows with every plan.
	generation uint64
	// desired is nil if the role is not desired any more.
	desired  *DesiredRole
	manifest *rolev1.RoleManifest
	// run says that the role may run, as soon as what it requires is Ready.
	run      bool
	requires []requirement
	// gate, if not empty, says why the role may not be started; leave says that its instance is to be left running, and not be stopped.
	gate  string
	leave bool
	// fingerprint changes when a running instance must be restarted, retry whenever a failure for good may have been put right.
	fingerprint, retry string
	// state and reason say why a desired role may not run: Blocked or Failed.
	state  hostv1.InstanceState
	reason string
	// stopAfter is which other roles must have stopped before this one does. It is never circular.
	stopAfter []string
}

// requirement is a role or capability that a role requires, and the roles that may run which provide it.
type requirement struct {
	name      string
	providers []string
}

// makePlan says of every role that is desired, or that was (present holds the manifests that its instances may have been launched with), what
// is to become of it. It depends on nothing else.
func makePlan(generation uint64, desired Desired, present map[string]*rolev1.RoleManifest) map[string]verdict {
	plan := make(map[string]verdict)
	for role := range present {
		plan[role] = verdict{generation: generation}
	}
	p := planner{candidates: make(map[string]*rolev1.RoleManifest), needs: make(map[string][]string), barred: make(map[string]string)}
	for n := range desired.Roles {
		d := &desired.Roles[n]
		role := d.Assignment.GetRole()
		v := verdict{generation: generation, desired: d, manifest: store.ManifestOf(d.Plugin, role), gate: d.Gate}
		switch {
		case d.Failed != "":
			v.state, v.reason = failed, d.Failed
			p.barred[role] = "is Failed"
		case d.Hold != "":
			v.state, v.reason = blocked, d.Hold
			p.barred[role] = "is held back"
		case d.Plugin == nil:
			v.state, v.reason = failed, "no plugin of the catalog offers the role: add one with reeve plugin add, or remove the role from the node"
			p.barred[role] = "is Failed"
		case v.manifest == nil:
			v.state, v.reason = failed, fmt.Sprintf("plugin %s %s does not offer the role", d.Plugin.GetName(), d.Plugin.GetVersion())
			p.barred[role] = "is Failed"
		default:
			p.candidates[role] = v.manifest
			p.needs[role] = needs(v.manifest, remit.ForRole(d.Plugin.GetGrants(), role))
		}
		v.fingerprint, v.retry = fingerprints(d, role)
		plan[role] = v
	}
	runnable := p.runnable()
	for role, manifest := range p.candidates {
		v := plan[role]
		if runnable[role] {
			v.run = true
			for _, name := range manifest.GetRequires() {
				v.requires = append(v.requires, requirement{name: name, providers: p.providers(name, runnable)})
			}
		} else {
			v.state, v.reason = blocked, p.why(role, runnable)
		}
		plan[role] = v
	}
	for role, after := range stopOrder(plan, present) {
		v := plan[role]
		v.stopAfter = after
		plan[role] = v
	}
	return plan
}

// fingerprints of what a role is to run as. An instance is restarted when the executable, the configuration or the remit changes, and not
// when the catalog's record changes otherwise.
func fingerprints(d *DesiredRole, role string) (fingerprint, retry string) {
	digest := d.Plugin.GetDigests()[store.Platform]
	manifest := store.ManifestOf(d.Plugin, role)
	grants := remit.ForRole(d.Plugin.GetGrants(), role)
	fingerprint = fmt.Sprintf("%s %d %q %x %x", digest, d.Assignment.GetGeneration(), d.Assignment.GetConfiguration(), encode(grants), encode(manifest))
	return fingerprint, fmt.Sprintf("%s %d", fingerprint, d.Plugin.GetGeneration())
}

func encode(message proto.Message) []byte {
	// Deterministic within one program, which is all that is asked for. It fails for no message that came over the wire.
	encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	return encoded
}

// needs is what has to be on the node for a role to be of use there: what it requires, and the store if it has a ConsensusUser, which is served by this node's own
// member only. What it requires is Ready before it starts; the store it opens when it comes to it.
func needs(manifest *rolev1.RoleManifest, granted *clusterv1.RoleGrants) []string {
	all := manifest.GetRequires()
	user := manifest.GetConsensusUser()
	if user == "" || user != granted.GetConsensusUser() || slices.Contains(manifest.GetProvides(), CapabilityConsensus) || slices.Contains(all, CapabilityConsensus) {
		return all
	}
	return append(slices.Clone(all), CapabilityConsensus)
}

// planner knows the desired roles: candidates are those that may run if what they need may, barred are the others and why.
type planner struct {
	candidates map[string]*rolev1.RoleManifest
	needs      map[string][]string
	barred     map[string]string
}

func provides(role string, manifest *rolev1.RoleManifest, name string) bool {
	return role == name || slices.Contains(manifest.GetProvides(), name)
}

// providers are the candidates that provide a name, of those in the set among (all, if it is nil), sorted.
func (p *planner) providers(name string, among map[string]bool) []string {
	var found []string
	for role, manifest := range p.candidates {
		if provides(role, manifest, name) && (among == nil || among[role]) {
			found = append(found, role)
		}
	}
	slices.Sort(found)
	return found
}

// runnable is the smallest set that holds every candidate for each of whose needs it holds a provider: roles that require each other in a
// circle are not in it.
func (p *planner) runnable() map[string]bool {
	set := make(map[string]bool)
	for grown := true; grown; {
		grown = false
		for role := range p.candidates {
			if set[role] {
				continue
			}
			missing := slices.ContainsFunc(p.needs[role], func(name string) bool {
				return len(p.providers(name, set)) == 0
			})
			if !missing {
				set[role], grown = true, true
			}
		}
	}
	return set
}

// why says what keeps a candidate from running.
func (p *planner) why(role string, runnable map[string]bool) string {
	if circle := p.circle(role, runnable); circle != nil {
		return "requires itself: " + strings.Join(circle, " → ") + "; remove one of these roles from the node"
	}
	for _, name := range p.needs[role] {
		if len(p.providers(name, runnable)) > 0 {
			continue
		}
		if stuck := p.providers(name, nil); len(stuck) > 0 {
			return fmt.Sprintf("requires %s, but role %s is Blocked", name, stuck[0])
		}
		if user := p.candidates[role].GetConsensusUser(); name == CapabilityConsensus && !slices.Contains(p.candidates[role].GetRequires(), name) {
			return fmt.Sprintf("uses the consensus store (ConsensusUser %s), and no role of this node that may run provides %s: %s", user, name, p.remedy())
		}
		// Of a role that is barred no more than its name may be known.
		if state, ok := p.barred[name]; ok {
			return fmt.Sprintf("requires role %s, which %s", name, state)
		}
		return fmt.Sprintf("requires %s, which no role of this node that may run provides", name)
	}
	return "requires what cannot run"
}

// consensus is the built-in role that provides the store.
const consensus = "consensus"

// remedy says what a user of the store needs. Of a role that is barred its name may be all that is known.
func (p *planner) remedy() string {
	if state, ok := p.barred[consensus]; ok {
		return fmt.Sprintf("role %s of this node %s", consensus, state)
	}
	return "assign one to the node (reeve node role add), or take the role from it"
}

// circle returns the roles from role back to role that require one another, if there are such; the shortest way, so that every name in
// it matters.
func (p *planner) circle(role string, runnable map[string]bool) []string {
	from := map[string]string{}
	for queue := []string{role}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, name := range p.needs[at] {
			if len(p.providers(name, runnable)) > 0 {
				continue
			}
			for _, next := range p.providers(name, nil) {
				if next == role {
					way := []string{role}
					for step := at; step != role; step = from[step] {
						way = append(way, step)
					}
					way = append(way, role)
					slices.Reverse(way)
					return way
				}
				if _, seen := from[next]; !seen {
					from[next] = at
					queue = append(queue, next)
				}
			}
		}
	}
	return nil
}

// stopOrder says of every role that may not run after which others it is stopped: those which it served. Where they served each other in a
// circle the order of their names decides.
func stopOrder(plan map[string]verdict, present map[string]*rolev1.RoleManifest) map[string][]string {
	var stopping []string
	for _, role := range slices.Sorted(maps.Keys(present)) {
		if !plan[role].run {
			stopping = append(stopping, role)
		}
	}
	serves := func(role, dependent string) bool {
		if role == dependent {
			return false
		}
		// A role with a ConsensusUser may need the store to end well.
		return present[dependent].GetConsensusUser() != "" && provides(role, present[role], CapabilityConsensus) ||
			slices.ContainsFunc(present[dependent].GetRequires(), func(name string) bool { return provides(role, present[role], name) })
	}
	order := make(map[string][]string)
	var stopped []string
	for len(stopping) > 0 {
		next := slices.IndexFunc(stopping, func(role string) bool {
			return !slices.ContainsFunc(stopping, func(other string) bool { return serves(role, other) })
		})
		next = max(next, 0)
		role := stopping[next]
		for _, other := range stopped {
			if serves(role, other) {
				order[role] = append(order[role], other)
			}
		}
		stopped = append(stopped, role)
		stopping = slices.Delete(stopping, next, next+1)
	}
	return order
}
