package roles

import (
	"cmp"
	"maps"
	"slices"
)

// claim is a desired role whose manifest says that it provides a capability.
type claim struct {
	role string
	// generation is that of the role's assignment: the older one was there first.
	generation uint64
	// run says that the plan lets the role run.
	run bool
}

// claimsOf returns the claims of a plan by capability, the oldest first.
func claimsOf(plan map[string]verdict) map[string][]claim {
	claims := make(map[string][]claim)
	for role, v := range plan {
		if v.desired == nil {
			continue
		}
		for _, capability := range v.manifest.GetProvides() {
			claims[capability] = append(claims[capability], claim{role: role, generation: v.desired.Assignment.GetGeneration(), run: v.run})
		}
	}
	for _, of := range claims {
		slices.SortFunc(of, func(a, b claim) int {
			return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.role, b.role))
		})
	}
	return claims
}

// plan takes note of which roles claim what from now on.
func (b *board) plan(plan map[string]verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims = claimsOf(plan)
	entries, _ := b.entries.Get()
	before := maps.Clone(b.holders)
	if capabilities := b.capabilitiesOf(entries); !maps.Equal(before, b.holders) {
		b.capabilities.Set(capabilities)
	}
}

// capabilitiesOf lists the providers.
func (b *board) capabilitiesOf(entries map[string]entry) Capabilities {
	capabilities := make(Capabilities)
	for capability := range b.claims {
		b.choose(capability, entries)
	}
	for capability := range maps.Clone(b.holders) { // also what nobody claims any more
		b.choose(capability, entries)
		if role := b.holders[capability]; entries[role].provides(capability) {
			capabilities[capability] = providerOf(role, entries[role])
		}
	}
	for role, e := range entries { // last, so that no role can provide another one's name
		if e.conn != nil {
			capabilities[role] = providerOf(role, e)
		}
	}
	return capabilities
}

// choose decides which role provides a capability: one at a time, and the same one for as long as it is desired and may run, through all of its
// restarts. Another role that claims the capability gets it only after that: otherwise whoever comes later could displace the
// consensus store or the cluster API. Where nobody has it yet, it goes to whoever was assigned first, running or not.
func (b *board) choose(capability string, entries map[string]entry) {
	held, claims := b.holders[capability], b.claims[capability]
	var first claim
	for _, c := range claims {
		if c.role == held && c.run {
			return
		}
		if first.role == "" || c.run && !first.run {
			first = c
		}
	}
	keeps := !first.run && slices.ContainsFunc(claims, func(c claim) bool { return c.role == held })
	switch {
	case keeps:
	case entries[held].provides(capability) && !entries[first.role].provides(capability):
		// It is on its way out, and serves until its successor does: others may need it in order to stop.
	case first.role == "":
		delete(b.holders, capability)
	default:
		b.holders[capability] = first.role
	}
}

// provides reports whether an instance runs that provides a capability.
func (e entry) provides(capability string) bool {
	return e.conn != nil && slices.Contains(e.remit.Manifest.GetProvides(), capability)
}

func providerOf(role string, e entry) Provider {
	return Provider{
		InstanceID:    e.remit.InstanceID,
		Role:          role,
		State:         e.status.GetState(),
		ConsensusUser: grantedUser(e.remit),
		Conn:          e.conn,
		Endpoints:     e.status.GetEndpoints(),
	}
}
