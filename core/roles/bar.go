package roles

import "slices"

// Bar keeps a role from running, whatever is desired, and says why; Unbar ends that. It reports whether it could: not while the role is desired, or
// something of it runs. It is for who needs to be alone with what belongs to a role that is gone.
func (r *Reconciler) Bar(role, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	desired := slices.ContainsFunc(r.desired.Roles, func(d DesiredRole) bool { return d.Assignment.GetRole() == role })
	if desired || r.actors[role] != nil {
		return false
	}
	r.barred[role] = why
	return true
}

// Unbar lets a role run again.
func (r *Reconciler) Unbar(role string) {
	r.mu.Lock()
	delete(r.barred, role)
	r.mu.Unlock()
	r.replan()
}
