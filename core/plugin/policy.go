package plugin

import (
	"errors"
	"os"
	"slices"

	"github.com/reeveproject/reeve/core/sandbox"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
	nodev1 "github.com/reeveproject/reeve/proto/reeve/node/v1"
	rolev1 "github.com/reeveproject/reeve/proto/reeve/role/v1"
	grants "github.com/reeveproject/reeve/proto/remit"
)

// consensusCapability is what the role provides that makes the sockets of the store.
const consensusCapability = "reeve.consensus.v1"

// describeDefaults bound a plugin that is asked for its manifest: no more than that takes, and the processes are its threads.
var describeDefaults = sandbox.Defaults{MemoryBytes: 512 << 20, Processes: 64, OpenFiles: 256, CPUWeight: 100}

// remit is who an instance of a role would be, but for its number.
func (l *Launcher) remit(spec Spec) (*Remit, error) {
	r := &Remit{Role: spec.Role, Manifest: manifestOf(spec.Plugin, spec.Role), Grants: grantsOf(spec.Plugin, spec.Role), SharedUID: l.users.shared}
	var err error
	if r.Powers, err = grants.Of(r.Grants.GetGrants()); err != nil {
		return nil, grantError(spec, r.Grants.GetGrants(), err)
	}
	r.Tier = r.Powers.Tier()
	if r.Powers.Privileged {
		// Nothing keeps it from becoming root: it is root from the beginning, and its files are.
		r.UID, r.GID, r.SharedUID = uint32(os.Geteuid()), uint32(os.Getegid()), true
		return r, nil
	}
	r.UID, r.GID, err = l.users.Of(spec.Role)
	return r, err
}

func grantError(spec Spec, granted []*rolev1.Grant, err error) *GrantError {
	wrong := &GrantError{Role: spec.Role, Plugin: spec.Plugin.GetName(), Err: err}
	var one *grants.Error
	problems := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		problems = joined.Unwrap()
	}
	for _, problem := range problems {
		if errors.As(problem, &one) && one.Index < len(granted) {
			wrong.Grants = append(wrong.Grants, clean(cut(granted[one.Index].GetName(), maxProblem)))
		}
	}
	slices.Sort(wrong.Grants)
	wrong.Grants = slices.Compact(wrong.Grants)
	return wrong
}

// policy is the sandbox of an instance.
func (l *Launcher) policy(r *Remit) sandbox.Policy {
	p := sandbox.Policy{
		Remit: r.Powers, UID: r.UID, GID: r.GID, OwnUser: !r.SharedUID, Private: []string{l.runtimeDir(r.Name)}, Defaults: l.defaults,
		GivesUp: r.Manifest.GetGivesUp(), EndsWithCore: r.Manifest.GetEndsWithCore(),
	}
	if r.Role == describeName {
		// It has been granted nothing, and has nobody to talk to but the core, which comes to it.
		p.GivesUp, p.Defaults, p.EndsWithCore = []string{grants.GiveUpNetwork}, describeDefaults, true
		return p
	}
	if r.Powers.Privileged {
		// It may be what runs the containers of a whole machine: it has the bounds only that it was granted.
		p.Defaults = sandbox.Defaults{}
	}
	p.Private = append(p.Private, l.roleDir(r.Role))
	p.Passages = []string{l.hostDir(), l.accessDir()}
	if slices.Contains(r.Manifest.GetProvides(), consensusCapability) {
		// It makes the sockets, in directories that the core gives to it.
		p.Passages = []string{l.hostDir()}
		p.Private = append(p.Private, l.accessDir())
	}
	return p
}

// SandboxOf says what a role would run in. What is wrong with its grants is left out: Prepare refuses the role.
func (l *Launcher) SandboxOf(spec Spec) *nodev1.Sandbox {
	return l.sandbox.Describe(l.policyOf(spec))
}

// Missing says what of a role's sandbox this node cannot enforce, sorted by name.
func (l *Launcher) Missing(spec Spec) []*clusterv1.Missing {
	return l.sandbox.Missing(l.policyOf(spec))
}

func (l *Launcher) policyOf(spec Spec) sandbox.Policy {
	r, err := l.remit(spec)
	if err != nil {
		r = &Remit{Role: spec.Role, Manifest: manifestOf(spec.Plugin, spec.Role), SharedUID: true, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	}
	r.Name = spec.Role
	return l.policy(r)
}

// Sandbox is what the instance runs in.
func (i *Instance) Sandbox() *nodev1.Sandbox { return i.session.sandbox() }

func (s *session) sandbox() *nodev1.Sandbox {
	described := s.launcher.sandbox.Describe(s.launcher.policy(s.remit))
	if s.group != nil {
		described.ControlGroups = s.group.Paths()
	}
	return described
}
